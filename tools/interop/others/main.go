// A producer and a push consumer of rocketmq-client-go. Arguments: NAMESRV TOPIC. Prints "sent ID" and "got BODY TAG KEY"; sends
// three messages, a fourth when it has got those, and ends when it has got all.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	rlog.SetLogLevel("error")
	names, topic := primitive.NewPassthroughResolver([]string{os.Args[1]}), os.Args[2]
	p, err := rocketmq.NewProducer(producer.WithNsResolver(names), producer.WithGroupName("go-producer"))
	check(err)
	check(p.Start())
	send := func(n int) {
		m := primitive.NewMessage(topic, []byte(fmt.Sprintf("body-%d", n)))
		m.WithTag("tag").WithKeys([]string{fmt.Sprintf("key-%d", n)})
		result, err := p.SendSync(context.Background(), m)
		check(err)
		if result.Status != primitive.SendOK {
			check(fmt.Errorf("status %d", result.Status))
		}
		fmt.Println("sent", result.MsgID)
	}
	for n := 0; n < 3; n++ {
		send(n)
	}
	got := make(chan string, 100)
	c, err := rocketmq.NewPushConsumer(consumer.WithNsResolver(names), consumer.WithGroupName("go-consumer"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	check(err)
	check(c.Subscribe(topic, consumer.MessageSelector{}, func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range ms {
			got <- fmt.Sprintf("got %s %s %s", m.Body, m.GetTags(), m.GetKeys())
		}
		return consumer.ConsumeSuccess, nil
	}))
	check(c.Start())
	end := time.After(90 * time.Second)
	for n := 0; n < 4; n++ {
		select {
		case line := <-got:
			fmt.Println(line)
		case <-end:
			check(fmt.Errorf("only %d messages came", n))
		}
		if n == 2 {
			send(3)
		}
	}
	check(c.Shutdown())
	check(p.Shutdown())
}
