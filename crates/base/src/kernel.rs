//! System calls that only Linux has, and replacements for other systems.

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{die_with_parent, is_process_file_system};
#[cfg(target_os = "linux")]
pub(crate) use linux::{die_with_parent, is_process_file_system};

#[cfg(target_os = "linux")]
mod linux {
    use std::{io, path::Path};

    use nix::sys::{
        prctl::set_pdeathsig,
        signal::Signal,
        statfs::{PROC_SUPER_MAGIC, statfs},
    };

    /// Makes the kernel kill this process when its parent dies.
    pub(crate) fn die_with_parent() -> io::Result<()> {
        Ok(set_pdeathsig(Signal::SIGKILL)?)
    }

    /// Returns true if a folder is in the `/proc` file system, wherever that is mounted.
    pub(crate) fn is_process_file_system(folder: &Path) -> bool {
        statfs(folder).is_ok_and(|found| found.filesystem_type() == PROC_SUPER_MAGIC)
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::{io, path::Path};

    /// Does nothing: only Linux can kill a process together with its parent.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "as on Linux, where the kernel may refuse it"
    )]
    pub(crate) fn die_with_parent() -> io::Result<()> {
        Ok(())
    }

    /// Returns false: only Linux has the `/proc` file system.
    pub(crate) fn is_process_file_system(_: &Path) -> bool {
        false
    }
}
