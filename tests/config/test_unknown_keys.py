"""Names that no option has: all at once, and no suggestion that says the opposite."""
import pytest

from rmq_store.config.load import resolve
from rmq_store.errors import ConfigError


def test_all_unknown_keys_of_a_file_are_named_at_once(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=a\ncheckTransactionMessageEnable=false\nfastListenPort=10909\nflushDiskTyp=ASYNC_FLUSH\n")
    with pytest.raises(ConfigError) as caught:
        resolve(config=file)
    said = str(caught.value)
    assert all(f"option {key} is unknown" in said
               for key in ("checkTransactionMessageEnable", "fastListenPort", "flushDiskTyp"))
    assert "did you mean flushDiskType?" in said
    assert said.count(str(file)) == 1


@pytest.mark.parametrize("key", ["checkTransactionMessageEnable", "enableTransactionMessage", "transactionMessage"])
def test_no_suggestion_is_the_opposite(key):
    with pytest.raises(ConfigError) as caught:
        resolve(keywords={key: "true"})
    assert "rejectTransactionMessage" not in str(caught.value)


@pytest.mark.parametrize(("key", "near"), [
    ("checkTransactionMessageEnable", None), ("enableSomethingOfLater", None), ("lite", None),
    ("syncFlush", "syncFlushTimeout"), ("recallMessageEnabled", "recallMessageEnable"), ("flush_moed", "flush_mode")])
def test_a_suggestion_is_near_or_the_line_goes(key, near):
    with pytest.raises(ConfigError) as caught:
        resolve(keywords={key: "true"})
    assert (f"did you mean {near}?" in str(caught.value)) if near else "is unknown: remove it; " in str(caught.value)


def test_a_misspelt_rejection_is_still_suggested():
    with pytest.raises(ConfigError, match="did you mean rejectTransactionMessage"):
        resolve(keywords={"rejectTransactionMesage": "true"})
