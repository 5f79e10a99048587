"""How the engine is run, as far as the time of a step depends on it."""

from msgspec import Struct

from windtunnel.simulator.emulator.graphs import Graphs
from windtunnel.simulator.emulator.speculation import Speculation


class Mode(Struct, frozen=True):
    kv_dtype: str = "auto"
    tensor_parallel: int = 1
    eager: bool = False
    asynchronous: bool = True
    speculation: Speculation | None = None
    graphs: Graphs | None = None
    """None: what vLLM captures by default."""
    threads: int = 1
    """OMP threads of the engine's process; vLLM 0.32 goes down to one unless OMP_NUM_THREADS says otherwise."""
    mamba_backend: str = "triton"
    ssm_dtype: str = "auto"
    """Of recurrent state; auto is the model's own."""
    conv_dtype: str = "auto"
    """Of the convolution's state in front of it; auto is 16 bit."""
    stochastic_rounding: bool = False
