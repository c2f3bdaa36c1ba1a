"""Native replacements for a few entries of a loaded PJRT plugin's function table.

A PJRT plugin (the C interface through which a framework drives an XLA compiler and runtime)
exports one function, `GetPjrtApi`, which returns a pointer to a static table of function
pointers. Every user of the plugin in the process sees the same table, so replacing an entry
here, before the backend creates its client, changes what the backend calls.

The replacements are compiled from LLVM IR at install time. They are not Python callbacks,
because the backend calls the table from worker threads while its main thread may hold the
interpreter lock inside a blocking call: a replacement that needs that lock would deadlock.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.targets.base import TargetUnavailable

# Layout of struct PJRT_Api in xla/pjrt/c/pjrt_c_api.h: struct_size, extension_start, then
# PJRT_Api_Version {struct_size, extension_start, major, minor}, then one pointer per function.
# Within major version 0 functions are only ever appended, so a function's index never changes.
_MAJOR = 0
_MAJOR_OFFSET = 32
_MINOR_OFFSET = 36
_TABLE_OFFSET = 40
_POINTER = 8

_CLIENT_CREATE = 10
_CLIENT_COMPILE = 20
_EXECUTABLE_NUM_OUTPUTS = 44
_EXECUTABLE_OUTPUT_MEMORY_KINDS = 47
_LOADED_EXECUTABLE_EXECUTE = 55
_BUFFER_TO_HOST_BUFFER = 70

# Upper bound on the outputs of one program; a program with more gets the plugin's own answer.
_MAX_OUTPUTS = 1 << 14
_MEMORY_KIND = b"device"

# Field offsets in the argument structs are those of pjrt_c_api.h on a 64-bit platform. Every
# argument struct begins with {size_t struct_size; void* extension_start}. A PJRT_Error* result
# of null means success.
_COUNTING_IR = """
@executed = global i64 0
@compiled = global i64 0
@read = global i64 0

define ptr @execute(ptr %args) {{
  %error = call ptr inttoptr (i64 {execute} to ptr)(ptr %args)
  %ok = icmp eq ptr %error, null
  %one = zext i1 %ok to i64
  %old = atomicrmw add ptr @executed, i64 %one monotonic
  ret ptr %error
}}

define ptr @compile(ptr %args) {{
  %error = call ptr inttoptr (i64 {compile} to ptr)(ptr %args)
  %ok = icmp eq ptr %error, null
  %one = zext i1 %ok to i64
  %old = atomicrmw add ptr @compiled, i64 %one monotonic
  ret ptr %error
}}

define ptr @to_host(ptr %args) {{
  %error = call ptr inttoptr (i64 {to_host} to ptr)(ptr %args)
  %ok = icmp eq ptr %error, null
  ; PJRT_Buffer_ToHostBuffer_Args: header, src, host_layout, dst, dst_size. Without dst it only asks for the size.
  %dst_in = getelementptr i8, ptr %args, i64 32
  %dst = load ptr, ptr %dst_in
  %asked = icmp ne ptr %dst, null
  %copied = and i1 %ok, %asked
  %one = zext i1 %copied to i64
  %old = atomicrmw add ptr @read, i64 %one monotonic
  ret ptr %error
}}
"""

_STAND_IN_IR = """
define ptr @create_client(ptr %args) {{
  ; PJRT_Client_Create_Args.num_options is the second field after the common header.
  %num_options = getelementptr i8, ptr %args, i64 24
  store i64 0, ptr %num_options
  %error = call ptr inttoptr (i64 {create_client} to ptr)(ptr %args)
  ret ptr %error
}}

define ptr @output_memory_kinds(ptr %args) {{
entry:
  ; PJRT_Executable_NumOutputs_Args: header, executable, num_outputs.
  %query = alloca [4 x i64]
  store i64 32, ptr %query
  %extension = getelementptr i8, ptr %query, i64 8
  store i64 0, ptr %extension
  %executable_in = getelementptr i8, ptr %args, i64 16
  %executable = load i64, ptr %executable_in
  %executable_out = getelementptr i8, ptr %query, i64 16
  store i64 %executable, ptr %executable_out
  %count_in = getelementptr i8, ptr %query, i64 24
  store i64 0, ptr %count_in
  %error = call ptr inttoptr (i64 {num_outputs} to ptr)(ptr %query)
  %ok = icmp eq ptr %error, null
  br i1 %ok, label %counted, label %failed
failed:
  ret ptr %error
counted:
  %count = load i64, ptr %count_in
  %fits = icmp ule i64 %count, {max_outputs}
  br i1 %fits, label %answer, label %pass
pass:
  %original = call ptr inttoptr (i64 {output_memory_kinds} to ptr)(ptr %args)
  ret ptr %original
answer:
  ; PJRT_Executable_OutputMemoryKinds_Args: header, executable, num_outputs, kinds, kind sizes.
  %count_out = getelementptr i8, ptr %args, i64 24
  store i64 %count, ptr %count_out
  %kinds_out = getelementptr i8, ptr %args, i64 32
  store i64 {kinds}, ptr %kinds_out
  %sizes_out = getelementptr i8, ptr %args, i64 40
  store i64 {sizes}, ptr %sizes_out
  ret ptr null
}}
"""


STANDALONE = """\
# Without a TPU: torch_tpu over XLA's CPU plugin (pip install {package}, x86-64), where a client is made
# without a TPU's options. On a TPU, delete everything down to `import torch`.
import ctypes, importlib.util, mmap, os
PLUGIN = {plugin}
os.environ |= {{"TPU_LIBRARY_PATH": PLUGIN, "TPU_SKIP_MDS_QUERY": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}}
os.environ |= {{"XLA_FLAGS": "{flags}"}}
get_api = ctypes.CFUNCTYPE(ctypes.c_void_p)(("GetPjrtApi", ctypes.CDLL(PLUGIN)))
CREATE = ctypes.c_uint64.from_address(get_api() + 120)  # PJRT_Client_Create in the table PJRT_Api of pjrt_c_api.h
CODE = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
CODE.write(bytes.fromhex("48c747180000000048b8") + CREATE.value.to_bytes(8, "little") + b"\\xff\\xe0")  # no options
ctypes.CDLL(None).mprotect(ctypes.c_void_p(ctypes.addressof(CREATE) & -4096), ctypes.c_size_t(8192), 3)
CREATE.value = ctypes.addressof(ctypes.c_char.from_buffer(CODE))
"""
"""What of `install` with `stand_in` the pinned plugin cannot do without, for a file of its own, which must be short.

It is `create_client` of `_STAND_IN_IR` as machine code. Formatted with the package that the plugin is from, an
expression for its path, and XLA's flags.
"""


@dataclass(frozen=True, slots=True)
class Shim:
    """The installed replacements of one plugin. `keep` holds the machine code and must outlive the client."""

    api_version: str
    keep: tuple[Any, ...]
    executed_address: int
    compiled_address: int
    read_address: int

    @property
    def executed(self) -> int:
        """Programs whose execution the plugin accepted in this process (inherited by a forked child)."""
        return ctypes.c_int64.from_address(self.executed_address).value

    @property
    def compiled(self) -> int:
        """Programs the plugin compiled in this process; programs read from a cache do not count."""
        return ctypes.c_int64.from_address(self.compiled_address).value

    @property
    def read(self) -> int:
        """Buffers of the device that were copied to the host in this process."""
        return ctypes.c_int64.from_address(self.read_address).value


# Once per plugin file: the table is shared by the whole process, and wrapping it twice would count twice.
_installed: dict[Path, Shim] = {}


def install(plugin: Path, *, stand_in: bool) -> Shim:
    """Load `plugin` and replace entries of its function table; repeated calls return the first result.

    Execution, compilation and copies to the host are counted. With `stand_in` two answers are supplied as well that
    XLA's CPU plugin lacks and TorchTPU needs: the memory kind of every program output ("device"),
    and the creation of a client without the options that only a TPU knows. Must run before the
    backend creates its client; survives fork.

    Raises TargetUnavailable where the file cannot be loaded or its interface is not the known one.
    """
    plugin = plugin.resolve()
    if plugin not in _installed:
        _installed[plugin] = _install(plugin, stand_in)
    return _installed[plugin]


def _install(plugin: Path, stand_in: bool) -> Shim:
    try:
        library = ctypes.CDLL(str(plugin), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        get_api = library.GetPjrtApi
    except (OSError, AttributeError) as error:
        raise TargetUnavailable(f"{plugin} is not a loadable PJRT plugin: {error}") from error
    get_api.restype = ctypes.c_void_p
    table = get_api()
    size = ctypes.c_size_t.from_address(table).value
    major = ctypes.c_int.from_address(table + _MAJOR_OFFSET).value
    minor = ctypes.c_int.from_address(table + _MINOR_OFFSET).value
    if major != _MAJOR:
        raise TargetUnavailable(f"{plugin} speaks PJRT {major}.{minor}; this harness knows {_MAJOR}.x only")
    if size < _TABLE_OFFSET + _POINTER * (_BUFFER_TO_HOST_BUFFER + 1):
        raise TargetUnavailable(f"{plugin} speaks PJRT {major}.{minor} in a table of {size} bytes: too small")

    def entry(index: int) -> int:
        return ctypes.c_void_p.from_address(table + _TABLE_OFFSET + _POINTER * index).value or 0

    kind = ctypes.create_string_buffer(_MEMORY_KIND)
    kinds = (ctypes.c_void_p * _MAX_OUTPUTS)(*([ctypes.addressof(kind)] * _MAX_OUTPUTS))
    sizes = (ctypes.c_size_t * _MAX_OUTPUTS)(*([len(_MEMORY_KIND)] * _MAX_OUTPUTS))
    counted = {"execute": _LOADED_EXECUTABLE_EXECUTE, "compile": _CLIENT_COMPILE, "to_host": _BUFFER_TO_HOST_BUFFER}
    ir = _COUNTING_IR.format(**{name: entry(index) for name, index in counted.items()})
    replacements = {index: name for name, index in counted.items()}
    if stand_in:
        ir += _STAND_IN_IR.format(
            create_client=entry(_CLIENT_CREATE),
            num_outputs=entry(_EXECUTABLE_NUM_OUTPUTS),
            output_memory_kinds=entry(_EXECUTABLE_OUTPUT_MEMORY_KINDS),
            max_outputs=_MAX_OUTPUTS,
            kinds=ctypes.addressof(kinds),
            sizes=ctypes.addressof(sizes),
        )
        replacements |= {_CLIENT_CREATE: "create_client", _EXECUTABLE_OUTPUT_MEMORY_KINDS: "output_memory_kinds"}

    engine = _jit(ir)
    for index, name in replacements.items():
        _write_pointer(table + _TABLE_OFFSET + _POINTER * index, engine.get_function_address(name))
    return Shim(
        api_version=f"{major}.{minor}",
        keep=(library, engine, kind, kinds, sizes),
        executed_address=engine.get_global_value_address("executed"),
        compiled_address=engine.get_global_value_address("compiled"),
        read_address=engine.get_global_value_address("read"),
    )


def _jit(ir: str) -> Any:
    """Compile LLVM IR for this machine; the result owns the machine code."""
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(ir)
    module.verify()
    # The large code model lets the code call addresses anywhere in the process.
    machine = llvm.Target.from_default_triple().create_target_machine(codemodel="large")
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


def _write_pointer(address: int, value: int) -> None:
    """Store a pointer into memory that the loader may have made read-only."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    start = address & ~(mmap.PAGESIZE - 1)
    length = (address + _POINTER - start + mmap.PAGESIZE - 1) & ~(mmap.PAGESIZE - 1)
    if libc.mprotect(start, length, mmap.PROT_READ | mmap.PROT_WRITE):
        raise OSError(ctypes.get_errno(), "cannot make the PJRT function table writable")
    ctypes.c_void_p.from_address(address).value = value
