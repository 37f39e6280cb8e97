"""A RocketMQ name server: routes of topics, told by brokers and asked by clients."""
