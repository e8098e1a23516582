//! [`Toolchain`]: an installed official core of one version, and the search for it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    KclError,
    version::{is_too_old, numbers},
};
use konverge_base::{
    checkout::{Checkout, Executable},
    error::SharedError,
    process::Program,
    variables,
};

/// The environment variable with the path of a Python interpreter that has `kcl_lib` installed.
const INTERPRETER: &str = variables::KONVERGE_KCL;

/// The name of the interpreter in errors.
pub(super) const HOST: &str = "the interpreter of the KCL core";

const PROBE: &str = include_str!("probe.py");

/// An official KCL core on this machine: an interpreter, the native library it loads, and the files that both
/// read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toolchain {
    /// The version, for example `0.13.2`. It is part of every stack's digest.
    pub version: String,
    /// The Python interpreter, with all links resolved.
    pub interpreter: PathBuf,
    /// The native library of `kcl_lib`.
    pub extension: PathBuf,
    /// Files and folders that a worker reads at its start: the interpreter, its standard library, shared
    /// libraries.
    pub readable: Vec<PathBuf>,
    /// The folders that the core lists at its start, without reading their files.
    pub folders: Vec<PathBuf>,
}

/// The information that `probe.py` prints about an interpreter and its core.
#[derive(Debug, Deserialize)]
pub(super) struct Probe {
    pub executable: PathBuf,
    pub tag: String,
    /// The operating system: `Linux` or `Darwin`.
    pub system: String,
    /// The version of macOS; empty on other systems.
    pub release: String,
    pub machine: String,
    version: Option<String>,
    extension: Option<PathBuf>,
    #[serde(default)]
    callable: bool,
    readable: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Toolchain {
    /// Finds the core of the version that a repository needs: in the interpreter that `KONVERGE_KCL` names, or else in
    /// the data folder, where [`install`](super::install()) puts it. A core in the checkout is refused, because the
    /// search runs the core outside of the sandbox.
    ///
    /// # Errors
    /// There is no such core (the hint says how to install it), or `KONVERGE_KCL` names an interpreter with another
    /// version.
    pub async fn find(version: &str, checkout: &Checkout) -> Result<Self, KclError> {
        match interpreter() {
            Some(interpreter) => Self::from_interpreter(&interpreter, version, checkout).await,
            None => Self::installed(&data_folder()?, version, checkout).await,
        }
    }

    /// Finds the core of the version that compiled an earlier commit. It may differ from the one that
    /// `KONVERGE_KCL` names, because versions are installed side by side below the data folder.
    ///
    /// # Errors
    /// The errors of [`Toolchain::find`]. If `KONVERGE_KCL` has another version, that error is returned.
    pub async fn find_earlier(version: &str, checkout: &Checkout) -> Result<Self, KclError> {
        match Self::find(version, checkout).await {
            Err(other @ KclError::WrongVersion { .. }) => {
                let installed = Self::installed(&data_folder()?, version, checkout).await;
                installed.map_err(|_| other)
            }
            found => found,
        }
    }

    /// Returns the core that `KONVERGE_KCL` names, in any version; `None` if the variable is not set.
    pub async fn of_environment(checkout: &Checkout) -> Option<Result<Self, KclError>> {
        let interpreter = interpreter()?;
        let core = Self::probed(&interpreter, checkout).await;
        Some(core.and_then(|core| core.require_trusted(checkout)))
    }

    /// Returns the core that is installed for a Python interpreter.
    ///
    /// # Errors
    /// The interpreter is in the checkout, does not run, or has no `kcl_lib` of this version.
    pub async fn from_interpreter(
        interpreter: &Path,
        version: &str,
        checkout: &Checkout,
    ) -> Result<Self, KclError> {
        let core = Self::probed(interpreter, checkout).await?;
        if core.version != version {
            return Err(KclError::WrongVersion {
                interpreter: interpreter.to_owned(),
                found: core.version,
                wanted: version.to_owned(),
            });
        }
        core.require_trusted(checkout)
    }

    async fn probed(interpreter: &Path, checkout: &Checkout) -> Result<Self, KclError> {
        let executable = checkout.executable(INTERPRETER, interpreter)?;
        let found = probe(executable, None).await?;
        found.check_call()?;
        found.core().ok_or_else(|| {
            KclError::Interpreter(interpreter.to_owned(), "it has no package `kcl_lib`".into())
        })
    }

    /// Returns the core that [`install`](super::install()) put into a data folder.
    ///
    /// # Errors
    /// It is missing, is in the checkout, or is incomplete and cannot be probed again.
    pub async fn installed(data: &Path, version: &str, checkout: &Checkout) -> Result<Self, KclError> {
        let folder = folder_of(data, version)?;
        checkout.trust("the folder of the KCL core (XDG_DATA_HOME)", &folder)?;
        let missing = || KclError::NotInstalled(version.to_owned());
        let text = std::fs::read_to_string(folder.join("core.json")).map_err(|_| missing())?;
        let core: Self = serde_json::from_str(&text).map_err(|_| missing())?;
        // After a system upgrade, shared libraries may have other names. Then the interpreter is probed again.
        if core.readable.iter().all(|path| path.exists()) {
            return core.require_trusted(checkout);
        }
        let interpreter = checkout.executable(HOST, &core.interpreter)?;
        Self::in_folder(interpreter, &folder, version)
            .await?
            .require_trusted(checkout)
    }

    /// Returns the core if neither its interpreter nor its library is in the checkout; an error otherwise.
    fn require_trusted(self, checkout: &Checkout) -> Result<Self, KclError> {
        checkout.trust(HOST, &self.interpreter)?;
        checkout.trust("the library of the KCL core", &self.extension)?;
        Ok(self)
    }

    /// Returns the core whose package is in `folder`, with the interpreter that runs it.
    pub(super) async fn in_folder(
        interpreter: Executable,
        folder: &Path,
        version: &str,
    ) -> Result<Self, KclError> {
        let core = probe(interpreter, Some(folder))
            .await?
            .core()
            .ok_or_else(|| KclError::NotInstalled(version.to_owned()))?;
        if core.version != version {
            return Err(KclError::NotInstalled(version.to_owned()));
        }
        Ok(core)
    }

    /// Returns the full name of a method of the core's service. Before 0.12 the service had another name.
    pub(super) fn method(&self, name: &str) -> String {
        let service = if numbers(&self.version) < (0, 12) {
            "KclvmService"
        } else {
            "KclService"
        };
        format!("{service}.{name}")
    }
}

/// Returns the value of `KONVERGE_KCL`.
fn interpreter() -> Option<PathBuf> {
    let named = std::env::var_os(INTERPRETER).filter(|value| !value.is_empty());
    named.map(PathBuf::from)
}

impl Probe {
    /// Returns true if a platform tag of a wheel names this system, as `manylinux_2_17_x86_64` and
    /// `macosx_11_0_arm64` do.
    pub(super) fn has_platform(&self, tag: &str) -> bool {
        let system = tag
            .strip_suffix(&self.machine)
            .and_then(|rest| rest.strip_suffix('_'));
        match (
            self.system.as_str(),
            system.map(|system| system.split_once('_').unwrap_or((system, ""))),
        ) {
            ("Darwin", Some(("macosx", oldest))) => {
                numbers(&self.release) >= numbers(&oldest.replace('_', "."))
            }
            ("Linux", Some((system, _))) => system.starts_with("manylinux"),
            _ => false,
        }
    }

    /// Returns the interpreter's kind and system, such as `cp312, macOS 14.5 on arm64`.
    pub(super) fn kind(&self) -> String {
        let system = match self.system.as_str() {
            "Darwin" => format!("macOS {}", self.release),
            other => other.to_owned(),
        };
        format!("{}, {system} on {}", self.tag, self.machine)
    }

    /// Returns an error if the core does not have the function that a worker calls.
    fn check_call(&self) -> Result<(), KclError> {
        match &self.version {
            Some(version) if !self.callable && (self.extension.is_some() || is_too_old(version)) => {
                Err(KclError::TooOld {
                    interpreter: self.executable.clone(),
                    version: version.clone(),
                })
            }
            _ => Ok(()),
        }
    }

    fn core(self) -> Option<Toolchain> {
        Some(Toolchain {
            version: self.version?,
            interpreter: self.executable,
            extension: self.extension?,
            readable: self.readable,
            folders: self.folders,
        })
    }
}

/// Queries an interpreter about itself and its core. The core is in `folder`, or installed for the interpreter.
pub(super) async fn probe(interpreter: Executable, folder: Option<&Path>) -> Result<Probe, KclError> {
    let path = interpreter.path().to_owned();
    let failed = |why: SharedError| KclError::Interpreter(path.clone(), why);
    let mut program = Program::new(interpreter).args(["-I", "-c", PROBE]);
    program.args.extend(folder.map(Into::into));
    // The wrapper scripts of version managers need PATH and HOME to find the real interpreter.
    let kept = [variables::PATH, variables::HOME].map(|name| Some((name.into(), std::env::var_os(name)?)));
    program.env = Some(kept.into_iter().flatten().collect());
    program.deadline = std::time::Duration::from_secs(30);
    let ended = program.run().await.map_err(|error| failed(error.into()))?;
    if ended.code != Some(0) {
        let stderr = String::from_utf8_lossy(&ended.stderr);
        return Err(failed(
            stderr.lines().last().unwrap_or("it ended with an error").into(),
        ));
    }
    serde_json::from_slice(&ended.stdout).map_err(|error| failed(error.into()))
}

/// Returns the data folder of Konverge: `$XDG_DATA_HOME/konverge`, or else `~/.local/share/konverge`.
///
/// # Errors
/// The environment has neither variable.
pub fn data_folder() -> Result<PathBuf, KclError> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute(variables::XDG_DATA_HOME)
        .or_else(|| absolute(variables::HOME).map(|home| home.join(".local/share")))
        .map(|folder| folder.join("konverge"))
        .ok_or(KclError::NoDataFolder)
}

/// Returns the folder of a core version below a data folder.
pub(super) fn folder_of(data: &Path, version: &str) -> Result<PathBuf, KclError> {
    let plain = !version.is_empty()
        && version
            .split('.')
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    if !plain || numbers(version) < (0, 9) {
        return Err(KclError::UnknownVersion(version.escape_debug().to_string()));
    }
    Ok(data.join("kcl").join(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_name_folders_and_nothing_else() {
        let data = Path::new("/data");
        assert_eq!(folder_of(data, "0.13.2").unwrap(), Path::new("/data/kcl/0.13.2"));
        for bad in ["", "..", "0.13.2/..", "0.8.7", "latest", "0..1", "0.13.2-rc1"] {
            assert!(folder_of(data, bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_missing_core_says_how_to_get_it() {
        let empty = tempfile::tempdir().unwrap();
        let error = Toolchain::installed(empty.path(), "0.13.2", &Checkout::default())
            .await
            .unwrap_err();
        let failure = konverge_base::error::UserError::from(error);
        assert_eq!(failure.hints, ["run `konverge kcl install 0.13.2`"]);
    }

    #[tokio::test]
    async fn an_interpreter_without_the_core_is_named() {
        let python = Path::new("/nonexistent/python");
        let error = Toolchain::from_interpreter(python, "0.13.2", &Checkout::default())
            .await
            .unwrap_err();
        assert!(error.to_string().contains("/nonexistent/python"), "{error}");
    }

    #[test]
    fn a_core_without_the_call_is_too_old() {
        let probe = |callable| Probe {
            executable: "/venv/bin/python".into(),
            tag: "cp312".to_owned(),
            system: "Linux".to_owned(),
            release: String::new(),
            machine: "x86_64".to_owned(),
            version: Some("0.8.7".to_owned()),
            extension: Some("/venv/_kcl_lib.so".into()),
            callable,
            readable: Vec::new(),
            folders: Vec::new(),
        };
        let failure = konverge_base::error::UserError::from(probe(false).check_call().unwrap_err());
        assert!(
            failure.message.contains("0.8.7") && failure.message.contains("0.9.0"),
            "{failure:?}"
        );
        assert!(failure.hints[0].contains("kcl.version"), "{failure:?}");
        assert!(probe(true).check_call().is_ok());
        // 0.8.0 has no library at all.
        let mut without = probe(false);
        without.extension = None;
        let failure = konverge_base::error::UserError::from(without.check_call().unwrap_err());
        assert!(failure.message.contains("0.8.7"), "{failure:?}");
    }

    #[test]
    fn a_version_that_is_too_old_is_not_offered_for_installation() {
        let wrong = KclError::WrongVersion {
            interpreter: "/venv/bin/python".into(),
            found: "0.13.2".to_owned(),
            wanted: "0.8.7".to_owned(),
        };
        for error in [wrong, KclError::UnknownVersion("0.8.7".to_owned())] {
            let hints = konverge_base::error::UserError::from(error).hints.join("\n");
            assert!(hints.contains("the oldest core that works is 0.9.0"), "{hints}");
            assert!(!hints.contains("install 0.8.7"), "{hints}");
        }
    }

    #[test]
    fn the_service_is_called_by_the_name_of_its_time() {
        let core = |version: &str| Toolchain {
            version: version.to_owned(),
            interpreter: PathBuf::new(),
            extension: PathBuf::new(),
            readable: Vec::new(),
            folders: Vec::new(),
        };
        assert_eq!(core("0.9.3").method("ExecProgram"), "KclvmService.ExecProgram");
        assert_eq!(core("0.13.2").method("ExecProgram"), "KclService.ExecProgram");
    }
}
