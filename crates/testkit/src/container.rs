//! A container without a container engine: its root has only the files that a test adds. It has its own process tree,
//! the capabilities that Docker leaves to root, and another user on request. Network and kernel are those of the
//! machine.
//!
//! It needs root, or `sudo` without a password.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use super::process::Konverge;

/// The file with the trusted certificate authorities, as on Debian.
pub const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The script that enters the container. Its arguments are root, user and folder, a triple for each mount, `--`, and
/// the command of the first process.
const ENTER: &str = r#"set -e
root=$1 user=$2 folder=$3
shift 3
mount -t tmpfs -o mode=755 container "$root"
while [ "$1" != -- ]; do
  at=$root$3
  if [ -d "$2" ]; then mkdir -p "$at"; else mkdir -p "${at%/*}" && : >"$at"; fi
  mount --bind "$2" "$at"
  [ "$1" = rw ] || mount -o remount,bind,ro "$at"
  shift 3
done
shift
mkdir -p "$root/proc" "$root/tmp"
chmod 1777 "$root/tmp"
mount -t proc proc "$root/proc"
left=chown,dac_override,fsetid,fowner,mknod,net_raw,setgid,setuid,setfcap,setpcap,net_bind_service,sys_chroot,kill,audit_write
exec setpriv --bounding-set="-all,+$(echo $left | sed 's/,/,+/g')" chroot --userspec="$user" "$root" \
  /bin/sh -c 'cd "$1" && shift && exec "$@"' sh "$folder" "$@"
"#;

/// The content of the container.
pub struct Container {
    root: PathBuf,
    mounts: Vec<OsString>,
}

impl Container {
    /// Creates a container with a shell, the C library, certificates, the program under test and the KCL core, but
    /// without git and bash. `root` is an empty folder.
    pub fn new(root: &Path) -> Self {
        let mut container = Self {
            root: root.to_owned(),
            mounts: Vec::new(),
        };
        for folder in ["/lib", "/lib64", "/usr/lib", "/bin/sh", "/bin/cat"] {
            if Path::new(folder).exists() {
                container.read_only(folder, folder);
            }
        }
        for device in ["/dev/null", "/dev/urandom"] {
            container.shared(device, device);
        }
        container.read_only(CERTIFICATES, CERTIFICATES);
        container.read_only(super::process::binary(), "/usr/local/bin/konverge");
        let interpreter = super::kcl::interpreter();
        let asked = Command::new(&interpreter)
            .args(["-c", "import sys; print(sys.prefix); print(sys.base_prefix)"])
            .output()
            .expect("the interpreter of the core runs");
        let prefixes = String::from_utf8(asked.stdout).expect("paths in UTF-8");
        for prefix in prefixes.lines().filter(|prefix| *prefix != "/usr") {
            container.read_only(prefix, prefix);
        }
        let itself = interpreter.canonicalize().expect("it is there");
        if itself.starts_with("/usr/bin") {
            container.read_only(&itself, &itself);
        }
        container
    }

    /// Mounts a file or folder with write access.
    pub fn shared(&mut self, source: impl AsRef<Path>, target: impl AsRef<Path>) -> &mut Self {
        self.mount("rw", source.as_ref(), target.as_ref())
    }

    /// Mounts a file or folder read-only.
    pub fn read_only(&mut self, source: impl AsRef<Path>, target: impl AsRef<Path>) -> &mut Self {
        self.mount("ro", source.as_ref(), target.as_ref())
    }

    fn mount(&mut self, access: &str, source: &Path, target: &Path) -> &mut Self {
        self.mounts.extend([access.into(), source.into(), target.into()]);
        self
    }

    /// Prepares the first process, as `user` (a number) in `folder`. It gets the variables of [`Konverge`].
    pub fn run(&self, user: u32, folder: &str, program: &[&str]) -> Konverge {
        let mut arguments: Vec<OsString> = Vec::new();
        if !nix::unistd::Uid::effective().is_root() {
            arguments.extend(["sudo", "-n", "-E"].map(Into::into));
        }
        arguments.extend(
            [
                "unshare",
                "--mount",
                "--pid",
                "--ipc",
                "--uts",
                "--fork",
                "--kill-child",
                "sh",
                "-c",
                ENTER,
                "sh",
            ]
            .map(Into::into),
        );
        arguments.extend([
            self.root.clone().into(),
            format!("{user}:{user}").into(),
            folder.into(),
        ]);
        arguments.extend(self.mounts.iter().cloned());
        arguments.push("--".into());
        arguments.extend(program.iter().map(Into::into));
        Konverge::of(Path::new("/usr/bin/env"), arguments)
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .with_kcl()
    }
}
