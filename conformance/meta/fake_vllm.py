"""A server that stands for vLLM's in tests of starting and stopping, and misbehaves on purpose; never for parity.

    python fake_vllm.py MODE -m vllm.entrypoints.openai.api_server --model DIR --port N ...

MODE: serves; dies (with a message); hangs (never listens); deaf (serves, ignores SIGTERM); base (says that it serves another
folder). `-c CODE`, with which an interpreter is asked whether it has vLLM, is answered with yes.
"""

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODE, WORDS = sys.argv[1], sys.argv[2:]


def option(name: str) -> str:
    return WORDS[WORDS.index(name) + 1]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        root = "/somewhere/else" if MODE == "base" else option("--model")
        answers = {
            "/health": "",
            "/version": json.dumps({"version": "0.0.fake"}),
            "/v1/models": json.dumps({"data": [{"id": option("--served-model-name"), "root": root, "max_model_len": 1024}]}),
            "/metrics": 'vllm:cache_config_info{cache_dtype="auto",enable_prefix_caching="False"} 1.0\n',
        }
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answers[self.path].encode())

    def log_message(self, *_):
        """Nothing for each request."""


if WORDS[0] == "-c":
    sys.exit(0)
print(f"fake server {os.getpid()} starts", flush=True)
if MODE == "dies":
    sys.exit("RuntimeError: no HBM left")
if MODE == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
while MODE == "hangs":
    time.sleep(1)
ThreadingHTTPServer((option("--host"), int(option("--port"))), Handler).serve_forever()
