//! The seccomp filter: the system calls that the KCL interpreter, or a module, may make. All others fail with
//! `EPERM`.
//!
//! It is an allow list, so system calls of future kernels are forbidden. The list comes from tracing KCL on the
//! example monorepo, and from the needs of the memory allocator and of glibc's threads. A module may also serve a
//! socket in its own folder. It may not connect: Landlock does not restrict connections to sockets with a path, and
//! one of these may belong to a container engine. The sandbox tests verify this.

use crate::profile::SandboxProfile;
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

/// System calls that are allowed with any arguments.
const ALLOWED: &[libc::c_long] = &[
    // Files. Landlock restricts which files can be opened.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_close,
    libc::SYS_openat,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getcwd,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    // Threads, and signals with which a process ends itself.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_execve,
    // Time and information about the process.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrlimit,
    libc::SYS_prlimit64,
    libc::SYS_prctl,
];

/// Older variants of these calls, which exist only on this architecture.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_getdents,
    libc::SYS_dup2,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[libc::c_long] = &[];

/// Also allowed for the unpacker of packages.
const MAKING_FOLDERS: &[libc::c_long] = &[
    libc::SYS_mkdirat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
];

/// System calls that are also allowed for a module, which serves a socket and writes to its own folder. None of these
/// calls affects another process.
const SERVING: &[libc::c_long] = &[
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_pwrite64,
    libc::SYS_unlinkat,
    libc::SYS_ftruncate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_mincore,
    libc::SYS_getppid,
    libc::SYS_getrusage,
    libc::SYS_umask,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_delete,
    libc::SYS_setitimer,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_accept,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_create,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pipe,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
];

/// Also allowed for a module that may use the network.
const CONNECTING: &[libc::c_long] = &[
    libc::SYS_connect,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
];

/// Restricts this thread, and every program that it executes, to the allowed calls.
///
/// # Errors
/// The kernel does not support seccomp filters, or this architecture is not supported.
pub(super) fn restrict(profile: SandboxProfile, makes_folders: bool) -> Result<(), String> {
    let words = |error: &dyn std::fmt::Display| format!("seccomp: {error}");
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| words(&error))?;
    let thread = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::MaskedEq(libc::CLONE_THREAD as u64),
        libc::CLONE_THREAD as u64,
    )
    .and_then(|condition| SeccompRule::new(vec![condition]))
    .map_err(|error| words(&error))?;
    let mut allowed: std::collections::BTreeMap<_, _> = ALLOWED
        .iter()
        .chain(ALLOWED_HERE)
        .chain(if makes_folders { MAKING_FOLDERS } else { &[] })
        .chain(match profile {
            SandboxProfile::Interpreter => &[],
            SandboxProfile::Module { .. } => SERVING,
        })
        .chain(match profile {
            SandboxProfile::Module { network: true } => CONNECTING,
            SandboxProfile::Module { network: false } | SandboxProfile::Interpreter => &[],
        })
        .map(|call| (*call, Vec::new()))
        .collect();
    if profile == (SandboxProfile::Module { network: false }) {
        let rule = own_socket().map_err(|error| words(&error))?;
        allowed.insert(libc::SYS_socket, vec![rule]);
    }
    // `clone` may start a thread, but no process.
    allowed.insert(libc::SYS_clone, vec![thread]);
    allowed.insert(libc::SYS_clone3, Vec::new());
    // The flags of `clone3` are in memory, where a filter cannot check them. After `ENOSYS`, glibc uses `clone`
    // instead.
    let absent = [(libc::SYS_clone3, Vec::new())].into_iter().collect();
    let deny = SeccompAction::Errno(libc::ENOSYS as u32);
    install(SeccompFilter::new(absent, SeccompAction::Allow, deny, arch).map_err(|error| words(&error))?)?;
    // This filter comes last, because it forbids installing further filters.
    let deny = SeccompAction::Errno(libc::EPERM as u32);
    install(SeccompFilter::new(allowed, deny, SeccompAction::Allow, arch).map_err(|error| words(&error))?)
}

/// Allows stream sockets in the file system or within the process. A datagram socket could send to any path without
/// connecting.
fn own_socket() -> Result<SeccompRule, seccompiler::BackendError> {
    let is = |argument, mask: libc::c_int, wanted: libc::c_int| {
        let operator = SeccompCmpOp::MaskedEq(mask as u64);
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, wanted as u64)
    };
    SeccompRule::new(vec![
        is(0, 0xffff, libc::AF_UNIX)?,
        is(1, 0xf, libc::SOCK_STREAM)?,
    ])
}

fn install(filter: SeccompFilter) -> Result<(), String> {
    let program: BpfProgram = filter
        .try_into()
        .map_err(|error: seccompiler::BackendError| format!("seccomp: {error}"))?;
    seccompiler::apply_filter(&program).map_err(|error| format!("seccomp: {error}"))
}
