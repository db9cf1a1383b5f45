"""The command line of a platform's server: print the command, or run it, check what it serves, record the rung, stop it."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from conformance.contract.bundle import Bundle
from conformance.contract.errors import ContractError
from conformance.contract.plan import Plan, make_plan
from conformance.contract.progress import Progress, Speaker
from conformance.contract.recipe import load_recipe
from conformance.contract.serving.cpu import vllm_python
from conformance.contract.serving.identity import MERGED, check_answers, check_weights
from conformance.contract.serving.launch import Platform
from conformance.contract.serving.manifest import write_manifest
from conformance.contract.serving.recorder import Start, record_absence, record_serving
from conformance.contract.serving.served import Served, served
from conformance.contract.serving.server import free_port, interruptible, to_stderr
from conformance.contract.serving.settings import Settings, check_checkpoint, check_image

BAD_INPUT, STOPPED = 2, 130
CACHE = Path("~/.cache/tpu-parity")


def add_options(command: argparse.ArgumentParser) -> None:
    """What left out is the platform's own: tensor parallelism, lengths and batches."""
    add = command.add_argument
    add("--checkpoint", metavar="DIR", help="local folder with the merged checkpoint (default: merged/ of --bundle)")
    add("--bundle", type=Path, help="the bundle whose merge this is: files and answers are checked against it")
    add("--recipe", type=Path, help="its recipe file (default: the one that the bundle names, where it was recorded)")
    add("--record", action="store_true", help="record the rung serving into --bundle, then stop")
    add("--no-controls", metavar="REASON", default="", help="with --record: don't serve the base and unmerged adapters too")
    add("--print", action="store_true", dest="only_print", help="print the command and end")
    add("--image", default="", metavar="NAME@sha256:DIGEST", help="container image (gpu, tpu); a tag is refused")
    add("--python", default="", help="interpreter that has vLLM (cpu; default: $PARITY_VLLM_PYTHON)")
    add("--tensor-parallel", type=int, help="devices that share the model (default: tpu 8, gpu 2, cpu 1)")
    add("--model-length", type=int, help="tokens of a prompt with its reply (default: 16384; cpu 1024)")
    add("--dtype", choices=("bfloat16", "float32"), help="of weights and activations (default: bfloat16; cpu float32)")
    add("--kv-dtype", default="auto", help="of the KV cache (default: auto, that of the model; fp8_e5m2, ...)")
    add("--quantisation", default="none", help="of the weights (default: none)")
    add("--memory-fraction", type=float, default=0.9, help="of the device's memory, for weights and KV cache (default: 0.9)")
    add("--max-sequences", type=int, help="that share a batch")
    add("--max-batched-tokens", type=int, help="that share a forward pass")
    add("--prefix-caching", action="store_true", help="reuse the KV cache of equal prefixes: not for benchmarks")
    add("--seed", type=int, default=0)
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8000, help="0: any that is free")
    add("--cache", type=Path, default=CACHE, help=f"folder that keeps compiled programs between starts (default: {CACHE})")
    add("--ready-s", type=float, help="how long a start may take (default: tpu 3600, gpu 1800, cpu 1200)")
    add("--manifest", type=Path, help="where settings, flags and digests are written (default: serving-PLATFORM.json)")
    add("--log", type=Path, help="file for the server's log (default: shown here)")


def parser(platform: Platform) -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=f"Serve a merged checkpoint with vLLM ({platform.name}).")
    add_options(top)
    return top


def main(platform: Platform, arguments: list[str] | None = None) -> int:
    """Exit codes: 0 printed or recorded, 2 bad input or a server that failed, 130 stopped by Ctrl-C or SIGTERM."""
    options = parser(platform).parse_args(arguments)
    try:
        with interruptible():
            return run(platform, options)
    except ContractError as error:
        print(f"serve: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("serve: stopped", file=sys.stderr)
        return STOPPED


def run(platform: Platform, options: argparse.Namespace) -> int:
    if options.record and not options.bundle:
        raise ContractError("--record needs --bundle: the rung is added to it")
    if options.record and not options.only_print:
        return _record(platform, options)
    settings = settings_of(platform, options)
    if options.only_print:
        print(platform.launch(settings))
        return 0
    bundle = Bundle(options.bundle) if options.bundle else None
    progress = Speaker(f"serve {platform.name}")
    with _log(options) as log, served(platform, settings, _ready_s(platform, options), progress, log) as up:
        path = options.manifest or Path(f"serving-{platform.name}.json")
        write_manifest(path, up.manifest)
        progress(f"manifest: {path}")
        if bundle:
            check_weights(bundle, up.manifest["weights_sha256"])
            dtypes = {"dtype": settings.dtype, "kv_dtype": settings.kv_dtype}
            progress(check_answers(up.api, bundle, plan_of(bundle, options), **dtypes))
        up.server.wait_end()
    return 0


def settings_of(
    platform: Platform, options: argparse.Namespace, checkpoint: Path | None = None, adapter: Path | None = None
) -> Settings:
    """`checkpoint`: another than the options say."""
    given = checkpoint or options.checkpoint or (options.bundle and options.bundle / MERGED)
    if not given:
        raise ContractError("give --checkpoint DIR, a local folder with a merged checkpoint, or --bundle BUNDLE")
    return Settings(
        platform=platform.name, checkpoint=check_checkpoint(given), adapter=adapter and adapter.resolve(),
        tensor_parallel=options.tensor_parallel or platform.tensor_parallel,
        model_length=options.model_length or platform.model_length, dtype=options.dtype or platform.dtype,
        kv_dtype=options.kv_dtype, quantisation=options.quantisation, memory_fraction=options.memory_fraction,
        max_sequences=options.max_sequences or platform.max_sequences,
        max_batched_tokens=options.max_batched_tokens or platform.max_batched_tokens, prefix_caching=options.prefix_caching,
        seed=options.seed, host=options.host, port=options.port or free_port(options.host), cache=options.cache.expanduser().resolve(),
        image=check_image(options.image, platform.name) if platform.has_container else "",
        python="" if platform.has_container else vllm_python(options.python),
    )  # fmt: skip


def plan_of(bundle: Bundle, options: argparse.Namespace) -> Plan:
    recipe = load_recipe(options.recipe) if options.recipe else bundle.recipe
    if recipe.digest != bundle.recipe.digest:
        ours, theirs = recipe.digest[:12], bundle.recipe.digest[:12]
        raise ContractError(f"recipe {options.recipe}: {ours} is not the recipe of bundle {bundle.path}, {theirs}")
    return make_plan(recipe)


def _record(platform: Platform, options: argparse.Namespace) -> int:
    """Without vLLM on a machine that needs it for nothing else, the bundle says so, and the rung is not proven."""
    bundle = Bundle(options.bundle)
    plan, progress = plan_of(bundle, options), Speaker(f"serve {bundle.stack}")
    try:
        options.python = options.python if platform.has_container else vllm_python(options.python)
    except ContractError as error:
        progress(f"not recorded: {error}")
        record_absence(bundle, plan, str(error))
        return 0

    with _log(options) as log:
        record_serving(bundle, plan, starter(platform, options, progress, log), progress, options.no_controls)
    return 0


def starter(platform: Platform, options: argparse.Namespace, progress: Progress, log: Callable[[str], None]) -> Start:
    """Starts a server of any checkpoint, otherwise as the options say."""

    @contextmanager
    def start(checkpoint: Path, adapter: Path | None) -> Iterator[Served]:
        settings = settings_of(platform, options, checkpoint, adapter)
        with served(platform, settings, _ready_s(platform, options), progress, log) as up:
            yield up

    return start


def _ready_s(platform: Platform, options: argparse.Namespace) -> float:
    return options.ready_s or platform.ready_s


@contextmanager
def _log(options: argparse.Namespace) -> Iterator[Callable[[str], None]]:
    with ExitStack() as stack:
        if not options.log:
            yield to_stderr
            return
        file = stack.enter_context(options.log.open("w", buffering=1))
        yield file.write
