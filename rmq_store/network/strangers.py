"""What a server logs of clients that speak another protocol. Any thread."""

__all__ = ["stranger_text"]


def stranger_text(http2: bool) -> str:
    """http2: else it begins with a TLS handshake where the server has no TLS."""
    if http2:
        return ("a client speaks HTTP/2, as the gRPC clients of RocketMQ 5 do (rocketmq-client-java, rocketmq-python-client): "
                "this server has the remoting protocol alone and closes the connection; take a client of that protocol "
                "(docs/broker.md)")
    return ("a client begins with a TLS handshake, and tls.server.mode is disabled: the connection is closed. The gRPC clients "
            "of RocketMQ 5 do so (rocketmq-client-java), and this server has no gRPC (docs/broker.md); a client of the "
            "remoting protocol needs tls.server.mode=permissive, or tls.enable=false on its side")
