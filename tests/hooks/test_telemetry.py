"""OpenTelemetry: RocketMQ's names, values of the store, any number of stores on a meter, nothing of a closed one."""
import subprocess
import sys

import pytest

from rmq_store import MessageStore
from rmq_store.status import RunningFlags

export = pytest.importorskip("opentelemetry.sdk.metrics.export")
sdk = pytest.importorskip("opentelemetry.sdk.metrics")

SMALL = {"segment_size_bytes": 1 << 18, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}


@pytest.fixture
def reader():
    made = export.InMemoryMetricReader()
    provider = sdk.MeterProvider(metric_readers=[made])
    made.meter = provider.get_meter("test")
    yield made
    provider.shutdown()


def collected(reader):
    """{name: {sorted attributes: value}}"""
    data = reader.get_metrics_data()
    metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data is not None else []
    assert len({m.name for m in metrics}) == len(metrics)
    return {m.name: {tuple(sorted(p.attributes.items())): p.value for p in m.data.data_points} for m in metrics}


def test_the_values_of_a_store(tmp_path, reader):
    from rmq_store.telemetry import instrument

    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        instrument(store, reader.meter)
        assert "rocketmq_storage_message_reserve_time" not in {n for n, rows in collected(reader).items() if rows}
        store.put_many("A", [b"x"] * 5)
        store.put("B", b"y")
        store.flush()
        store.wait_dispatched(10)
        with store.consumer("g", "A") as consumer:
            consumer.poll(timeout=5).ack()
        store.set_writeable(False)
        found = collected(reader)
        path = ("path", store.path)
        stats = store.stats()
        assert found["rocketmq_storage_size"] == {(path, ("storage_medium", "disk"), ("storage_type", "local")): stats["wrote"]}
        assert found["rocketmq_storage_flush_behind_bytes"] == {(path,): 0}
        assert found["rocketmq_storage_dispatch_behind_bytes"] == {(path,): 0}
        assert 0 <= found["rocketmq_storage_message_reserve_time"][path,] < 600_000
        assert found["rocketmq_messages_in_total"] == {(path, ("topic", "A")): 5, (path, ("topic", "B")): 1}
        assert found["rocketmq_throughput_in_total"][path, ("topic", "A")] == store.topic_counts()["A"][1]
        group = (("consumer_group", "g"), path, ("topic", "A"))
        assert found["rocketmq_messages_out_total"] == {group: 5}
        assert found["rocketmq_throughput_out_total"][group] > 0 and found["rocketmq_send_to_dlq_messages_total"][group] == 0
        assert found["rocketmq_consumer_lag_messages"] == {group: 0}
        assert found["rmq_store_puts"] == {(path,): 6}
        assert found["rmq_store_running_flags"] == {(path,): RunningFlags.NOT_WRITEABLE}
        assert found["rmq_store_failed"] == {(path,): 0}


def test_stores_share_a_meter_and_a_closed_one_has_none(tmp_path, reader):
    from rmq_store.telemetry import instrument

    def paths():
        return {dict(row)["path"] for row in collected(reader).get("rmq_store_puts", {})}

    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    with MessageStore.open(one, **SMALL) as first:
        instrument(first, reader.meter)
        with MessageStore.open(two, **SMALL) as second:
            instrument(second, reader.meter)
            instrument(second, reader.meter)
            assert paths() == {one, two}
        assert paths() == {one}
        with MessageStore.open(two, **SMALL) as again:
            instrument(again, reader.meter)
            assert paths() == {one, two}
    assert paths() == set()


def test_without_a_meter_it_is_the_global_one(tmp_path):
    code = ("import sys\nfrom opentelemetry import metrics\nfrom opentelemetry.sdk.metrics import MeterProvider\n"
            "from opentelemetry.sdk.metrics.export import InMemoryMetricReader\nfrom rmq_store import MessageStore\n"
            "from rmq_store.telemetry import instrument\nreader = InMemoryMetricReader()\n"
            "metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))\n"
            "with MessageStore.open(sys.argv[1], profile='test') as store:\n    store.put('T', b'x')\n    instrument(store)\n"
            "    print([m.name for m in reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics])\n")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], capture_output=True, text=True, check=True)
    assert "rocketmq_storage_size" in done.stdout


def test_names_stay():
    """Dashboards hang on them. The names of DefaultStoreMetricsConstant and BrokerMetricsConstant of 5.3.3."""
    from rmq_store.telemetry import _INSTRUMENTS

    assert [name for name, *_ in _INSTRUMENTS if name.startswith("rocketmq_")] == [
        "rocketmq_storage_size", "rocketmq_storage_flush_behind_bytes", "rocketmq_storage_dispatch_behind_bytes",
        "rocketmq_storage_message_reserve_time", "rocketmq_messages_in_total", "rocketmq_throughput_in_total",
        "rocketmq_messages_out_total", "rocketmq_throughput_out_total", "rocketmq_send_to_dlq_messages_total",
        "rocketmq_consumer_lag_messages"]


def test_it_names_the_extra_where_the_package_is_missing(tmp_path):
    (tmp_path / "opentelemetry.py").write_text("raise ModuleNotFoundError('no', name='opentelemetry')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import rmq_store.telemetry"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == ("ModuleNotFoundError: rmq_store.telemetry needs opentelemetry-api: "
                                            "pip install 'rmq_store[opentelemetry]'")
