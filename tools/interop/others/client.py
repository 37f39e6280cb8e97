"""A producer and a push consumer of the package rocketmq. Arguments: NAMESRV TOPIC. As main.go."""
import queue
import sys

from rocketmq.client import Message, Producer, PushConsumer

names, topic = sys.argv[1:]
producer = Producer("py-producer")
producer.set_namesrv_addr(names)
producer.start()
got = queue.Queue()


def send(n):
    message = Message(topic)
    message.set_tags("tag")
    message.set_keys(f"key-{n}")
    message.set_body(f"body-{n}")
    result = producer.send_sync(message)
    assert result.status == 0, result
    print("sent", result.msg_id, flush=True)


def hear(message):
    got.put((message.body, message.tags, message.keys))


for n in range(3):
    send(n)
consumer = PushConsumer("py-consumer")
consumer.set_namesrv_addr(names)
consumer.subscribe(topic, hear)
consumer.start()
for n in range(4):
    print("got", *(word.decode() for word in got.get(timeout=90)), flush=True)
    if n == 2:
        send(3)
consumer.shutdown()
producer.shutdown()
