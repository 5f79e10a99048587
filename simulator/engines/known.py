"""Every kind of engine, in the order in which a server is tried against them."""

from windtunnel.simulator.engines.base import Adapter
from windtunnel.simulator.engines.dynamo import Dynamo
from windtunnel.simulator.engines.emulator import Emulator
from windtunnel.simulator.engines.external import External
from windtunnel.simulator.engines.llamacpp import LlamaCpp
from windtunnel.simulator.engines.sglang import Sglang
from windtunnel.simulator.engines.trtllm import TrtLlm
from windtunnel.simulator.engines.vllm import Vllm

ADAPTERS: tuple[Adapter, ...] = (Emulator(), Dynamo(), Vllm(), Sglang(), TrtLlm(), LlamaCpp(), External())
"""The emulator first, because it answers as vLLM does; a plain server last, because everything looks like one."""
