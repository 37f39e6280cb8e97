// A producer and a push consumer of ali-ons. Arguments: NAMESRV TOPIC. As main.go.
const { Producer, Consumer, Message } = require('ali-ons');

const [names, topic] = process.argv.slice(2);
const quiet = { info() {}, debug() {}, warn() {}, error(...words) { console.error(...words); } };
const options = { accessKeyId: 'key', accessKeySecret: 'secret', nameSrv: names, logger: quiet,
  httpclient: { request() { throw new Error('no HTTP'); } } };

async function main() {
  const producer = new Producer({ producerGroup: 'node-producer', ...options });
  await producer.ready();
  const send = async n => {
    const message = new Message(topic, 'tag', `body-${n}`);
    message.keys = [`key-${n}`];
    const result = await producer.send(message);
    if (result.sendStatus !== 'SEND_OK') throw new Error(result.sendStatus);
    console.log('sent', result.msgId);
  };
  for (let n = 0; n < 3; n++) await send(n);
  let count = 0;
  const consumer = new Consumer({ consumerGroup: 'node-consumer', ...options });
  const all = new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`only ${count} messages came`)), 90000);
    consumer.subscribe(topic, '*', async message => {
      console.log('got', message.body.toString(), message.tags, message.keys);
      count++;
      if (count === 3) await send(3);
      if (count === 4) resolve();
    });
  });
  await consumer.ready();
  await all;
}

main().then(() => process.exit(0), error => { console.error(error); process.exit(1); });
