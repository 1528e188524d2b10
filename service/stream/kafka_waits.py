"""Own the ends of a Kafka client's waits that time out.

kafka-python 3.0.12 keeps the error of such a wait where the error's own frames hold it: a cycle, and with it whoever
waited, with the records of a batch, until the next search for garbage. A consumer waits hundreds of times a minute.
"""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer
from kafka.errors import KafkaTimeoutError


def letting_go(consumer: KafkaConsumer) -> KafkaConsumer:
    """Let each wait that times out end by an error that nothing else holds, and forget what held its own."""
    net = consumer._net
    run = net.run

    def run_and_let_go(wait: Any, *arguments: Any) -> Any:
        try:
            return run(wait, *arguments)
        except KafkaTimeoutError as error:
            error.__traceback__ = None
            told = error.args
        raise KafkaTimeoutError(*told)

    net.run = run_and_let_go
    return consumer
