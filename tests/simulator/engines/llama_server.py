"""llama.cpp's own HTTP server out of the package xllamacpp, started with the few flags of llama-server that tests use.

Run with an interpreter that has xllamacpp: `python llama_server.py -m FILE.gguf --port 8080 --metrics`.
"""

import argparse
import sys
import threading

import xllamacpp


def main() -> None:
    parser = argparse.ArgumentParser(prog="llama-server")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("--jinja", action="store_true")
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--ctx-size", type=int, default=4096)
    parser.add_argument("--slot-save-path", default="")
    parser.add_argument("--cache-ram", type=int, default=8192)
    flags = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = flags.model
    params.hostnames = [flags.host]
    params.port = flags.port
    params.endpoint_metrics = flags.metrics
    params.endpoint_slots = True
    params.use_jinja = flags.jinja
    params.n_parallel = flags.parallel
    params.n_ctx = flags.ctx_size
    params.slot_save_path = flags.slot_save_path
    params.cache_ram_mib = flags.cache_ram
    params.cpuparams.n_threads = 2
    server = xllamacpp.Server(params)
    print(f"serving at {server.listening_address}", file=sys.stderr, flush=True)
    threading.Event().wait()


main()
