"""Be a server of S3 buckets (moto's): `python -m tests.s3.server`, with what requirements.lock names on PYTHONPATH.

It says its port and the two parts of the one key that it lets in, a word each, and ends when its standard input does.
"""

from __future__ import annotations

import json
import logging
import sys
import urllib.request

import boto3
from moto.server import ThreadedMotoServer

ANYTHING = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


def main() -> None:
    """Serve until standard input ends."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    address = f"http://127.0.0.1:{port}"
    # Whoever comes first is let in: here, who makes the key that all others need.
    iam = boto3.client(
        "iam", endpoint_url=address, region_name="us-east-1", aws_access_key_id="first", aws_secret_access_key="first"
    )
    iam.create_user(UserName="reader")
    iam.put_user_policy(UserName="reader", PolicyName="all", PolicyDocument=json.dumps(ANYTHING))
    key = iam.create_access_key(UserName="reader")["AccessKey"]
    now_ask = urllib.request.Request(f"{address}/moto-api/reset-auth", b"0", {"Content-Type": "text/plain"})
    urllib.request.urlopen(now_ask, timeout=60).close()
    print(port, key["AccessKeyId"], key["SecretAccessKey"], flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
