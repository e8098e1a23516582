# Becomes a program for which the kernel has no Landlock: its system calls answer ENOSYS, as before Linux 5.13.
# Arguments: the program and its own.
import ctypes, errno, os, struct, sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LD_W_ABS, JEQ, JGE, RET = 0x20, 0x15, 0x35, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
LANDLOCK = (444, 445, 446)  # the same numbers on every architecture

step = lambda code, yes, no, k: struct.pack("HBBI", code, yes, no, k)
program = [step(LD_W_ABS, 0, 0, 0)]
program += [step(JEQ, len(LANDLOCK) - at, 0, number) for at, number in enumerate(LANDLOCK)]
program += [step(RET, 0, 0, ALLOW), step(RET, 0, 0, ERRNO | errno.ENOSYS)]
code = ctypes.create_string_buffer(b"".join(program))


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]


libc = ctypes.CDLL(None, use_errno=True)
filter = Filter(len(program), ctypes.addressof(code))
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filter), 0, 0):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
