//! The errors of compiling a stack, from its files to its value.

use std::{path::PathBuf, time::Duration};

use super::{
    KclDiagnostic, OLDEST_VERSION, core_hints, core_hints::CoreRange, language_hints, version::is_too_old,
};
use konverge_base::{
    checkout::Untrusted,
    error::{Cause, ErrorKind, SharedError, UserError, chain},
    model::{stack::GET_KCL, text::with_place_count},
};

/// The error of a compilation or of the core itself.
#[derive(Debug, Clone, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum KclError {
    /// The core is not installed on this machine.
    #[error("the KCL core {0} is not installed")]
    NotInstalled(String),
    /// The interpreter in `KONVERGE_KCL` cannot run the core.
    #[error("the Python interpreter `{}` cannot host the KCL core", .0.display())]
    Interpreter(PathBuf, #[source] SharedError),
    /// A program or a folder is inside the checkout, so that a branch could have brought it.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// The core does not have a function that the worker calls.
    #[error(
        "the KCL core {version} in `{}` is too old: it lacks a function that Konverge calls; the oldest core that works is {OLDEST_VERSION}",
        interpreter.display()
    )]
    TooOld {
        interpreter: PathBuf,
        /// The version of the core.
        version: String,
    },
    /// The core in `KONVERGE_KCL` has another version than the repository needs.
    #[error("`{}` (KONVERGE_KCL) holds the KCL core {found}, the repository wants {wanted}", interpreter.display())]
    WrongVersion {
        interpreter: PathBuf,
        /// The version of that core.
        found: String,
        /// The needed version: `kcl.version` of `konverge.yaml`, or the default.
        wanted: String,
    },
    /// The version does not exist or cannot be installed.
    #[error("`{0}` is not a KCL core version that Konverge knows")]
    UnknownVersion(String),
    /// Neither `XDG_DATA_HOME` nor `HOME` is set.
    #[error("there is no folder to keep the KCL core in: neither XDG_DATA_HOME nor HOME is set")]
    NoDataFolder,
    /// The core could not be downloaded or installed.
    #[error("the KCL core {version} could not be installed")]
    Install {
        version: String,
        #[source]
        why: SharedError,
    },
    /// A download does not have its pinned hash.
    #[error("`{file}` has the SHA-256 {found}, but {pinned} is pinned")]
    Checksum {
        file: String,
        /// The received hash.
        found: String,
        /// The pinned hash.
        pinned: String,
    },
    /// A dependency of `kcl.mod` is not available.
    #[error("the package `{name}`")]
    Package {
        name: String,
        #[source]
        why: SharedError,
    },
    /// The package does not have its locked checksum. The actual checksum is not reported, because an outsider must not
    /// learn which one would match.
    #[error("the package `{name}` is not what `kcl.mod.lock` pins: it should have the SHA-256 {pinned}")]
    PackageDiffers {
        name: String,
        /// The locked checksum.
        pinned: String,
    },
    /// A pull request from outside needs a package that its target branch does not have.
    #[error(
        "the package `{0}` is not fetched for a pull request from outside: the target branch does not have it from this source with this checksum"
    )]
    UnknownPackage(String),
    /// No lock pins the dependency, and this run may not look it up.
    #[error(
        "the package `{name}` is not locked: kcl.mod.lock has neither a commit nor a checksum for it, and {}",
        if *offline {
"this is an offline run"
        } else {
"a pull request from outside gets only what its target branch locks"
        }
    )]
    NotLocked { name: String, offline: bool },
    /// The lock entry of a dependency belongs to another version.
    #[error("the package `{name}`: kcl.mod asks for {asked}, the lock has {locked}")]
    LockDiffers {
        name: String,
        asked: String,
        locked: String,
    },
    /// The lock cannot be written.
    #[error("kcl.mod.lock cannot be written")]
    Lock(#[source] SharedError),
    /// A dependency would have to be fetched, but the run is offline.
    #[error("the package `{0}` was not fetched before, and this is an offline run")]
    Offline(String),
    /// A worker could not be started, or not sandboxed as required.
    #[error("a KCL worker could not be started")]
    Start(#[source] SharedError),
    /// The files could not be written into the working folder.
    #[error("the files of `{label}` could not be written for the compiler")]
    Scratch {
        label: String,
        #[source]
        why: SharedError,
    },
    /// KCL rejected the code.
    #[error("{}", render(.0))]
    Code(Vec<KclDiagnostic>),
    /// The compilation exceeded its deadline.
    #[error("compiling `{label}` took longer than {} s and was stopped", deadline.as_secs_f64())]
    Deadline { label: String, deadline: Duration },
    /// The compilation crashed the worker.
    #[error("the compiler ended while it compiled `{label}`: {why}")]
    Crash {
        label: String,
        /// The known details of the cause.
        why: String,
    },
    /// The core's response is not valid.
    #[error("the KCL core gave an answer that cannot be read")]
    Answer(#[source] SharedError),
}

/// The cores that report an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoreReach {
    /// All cores outside this range report the error.
    Range(CoreRange),
    /// Every core reports the error: the code, a package or a setting must change.
    Every,
    /// The core versions that report the error are unknown.
    Unknown,
}

impl KclError {
    /// Returns the errors of the code if every machine would report them for the same files.
    ///
    /// If another run removes a package at the same time, that looks like a missing import. So errors of missing
    /// imports count only if there are no fetched `packages`.
    pub fn lasting_refusal(&self, packages: &[(String, PathBuf)]) -> Option<&[KclDiagnostic]> {
        let Self::Code(diagnostics) = self else {
            return None;
        };
        let is_lasting = |one: &KclDiagnostic| {
            !one.is_of_the_machine() && (packages.is_empty() || !one.is_missing_import())
        };
        let lasts = !diagnostics.is_empty() && diagnostics.iter().all(is_lasting);
        lasts.then_some(diagnostics.as_slice())
    }

    /// Returns true if the error depends only on the files of the repository, not on this machine or a server.
    pub fn is_of_the_code(&self) -> bool {
        matches!(
            self,
            Self::Code(_) | Self::NotLocked { offline: false, .. } | Self::LockDiffers { .. }
        )
    }

    /// Returns the cores that report the error, one item for each diagnostic.
    pub fn core_reach(&self) -> Vec<CoreReach> {
        let Self::Code(diagnostics) = self else {
            return vec![match self {
                Self::Crash { .. } | Self::Answer(_) | Self::Deadline { .. } => CoreReach::Unknown,
                _ => CoreReach::Every,
            }];
        };
        let hints = language_hints::hints(diagnostics);
        let one = |(diagnostic, hint): (&KclDiagnostic, Option<String>)| match (
            core_hints::range(diagnostic),
            hint,
        ) {
            (Some(range), _) => CoreReach::Range(range),
            (None, Some(_)) => CoreReach::Every,
            (None, None) => CoreReach::Unknown,
        };
        diagnostics.iter().zip(hints).map(one).collect()
    }

    /// Returns true if the core cannot be used at all: every compilation fails for the same reason.
    pub fn is_of_the_core(&self) -> bool {
        matches!(
            self,
            Self::NotInstalled(_)
                | Self::Interpreter(..)
                | Self::TooOld { .. }
                | Self::WrongVersion { .. }
                | Self::UnknownVersion(_)
                | Self::NoDataFolder
        )
    }
}

/// Formats the diagnostics: the first one in full, then the others, one per line. If the core reports the same text for
/// several positions, it is printed once with the number of the others. A hint is printed below the first error
/// that has it.
fn render(diagnostics: &[KclDiagnostic]) -> String {
    let mut heads: Vec<(String, usize)> = Vec::new();
    let mut firsts = Vec::new();
    for (diagnostic, hint) in diagnostics.iter().zip(language_hints::hints(diagnostics)) {
        let head = diagnostic.head();
        match heads.iter_mut().find(|(known, _)| *known == head) {
            Some((_, more)) => *more += 1,
            None => {
                heads.push((head, 0));
                firsts.push((diagnostic, hint));
            }
        }
    }
    let mut said = Vec::new();
    let lines = firsts.into_iter().zip(&heads).enumerate();
    let lines: Vec<_> = lines
        .map(|(at, ((diagnostic, hint), (_, more)))| {
            let text = match at {
                0 => diagnostic.text(),
                _ => diagnostic.line(),
            };
            let text = with_place_count(&text, *more);
            match hint.filter(|hint| !said.contains(hint)) {
                Some(hint) => {
                    let text = with_hint(text, &hint);
                    said.push(hint);
                    text
                }
                None => text,
            }
        })
        .collect();
    if lines.is_empty() {
        "KCL refused the code without saying why".to_owned()
    } else {
        lines.join("\n")
    }
}

fn with_hint(text: String, hint: &str) -> String {
    format!("{text}\n    hint: {hint}")
}

impl From<KclError> for UserError {
    /// Converts the error. A hint that names the `kcl` command is followed by how to install that command.
    fn from(error: KclError) -> Self {
        let failure = with_hints(error);
        if failure.hints.iter().any(|hint| hint.contains("kcl mod ")) {
            failure.hint(GET_KCL)
        } else {
            failure
        }
    }
}

fn with_hints(error: KclError) -> UserError {
    let failure = UserError::from_error(ErrorKind::Kcl, error.clone());
    match error {
            KclError::Untrusted(error) => error.into(),
            KclError::NotInstalled(version) => {
                failure.hint(format!("run `konverge kcl install {version}`"))
            }
            KclError::Interpreter(..) => failure.hint(
                "unset KONVERGE_KCL to use an installed core, or name an interpreter whose environment holds `kcl-lib`",
            ),
            KclError::TooOld { .. } => failure.hint(format!(
                "write `kcl.version: {OLDEST_VERSION}` or a newer one into konverge.yaml, run `konverge kcl install` with that version, and unset KONVERGE_KCL"
            )),
            KclError::WrongVersion { found, wanted, .. } if is_too_old(&wanted) => failure.hint(format!(
                "write `kcl.version: {found}` into konverge.yaml: the oldest core that works is {OLDEST_VERSION}"
            )),
            KclError::WrongVersion { found, wanted, .. } => failure
                .hint(format!("unset KONVERGE_KCL, and run `konverge kcl install {wanted}`"))
                .hint(format!("or write `kcl.version: {found}` into konverge.yaml")),
            KclError::Install { why, .. } if chain(&*why).contains("CPython") => failure.hint(
                "install one of these (`apt-get install python3`, on macOS `brew install python@3.13`), or name it where it is not on the PATH: `--interpreter PYTHON`",
            ),
            KclError::Install { .. } => failure
                .hint("set HTTPS_PROXY to use a proxy, `--index URL` or PIP_INDEX_URL to use a mirror of PyPI")
                .hint("without a network: set KONVERGE_KCL to a Python interpreter whose environment has `kcl-lib`"),
            KclError::UnknownVersion(version) if is_too_old(&version) => failure.hint(format!(
                "the oldest core that works is {OLDEST_VERSION}: earlier ones lack a function that Konverge calls"
            ))
            .hint("run `konverge kcl list` for the versions that can be installed"),
            KclError::UnknownVersion(_) => failure.hint("run `konverge kcl list` for the versions that can be installed"),
            KclError::Start(why) if chain(&*why).contains(konverge_sandbox::MISSING) => {
                konverge_sandbox::HINTS.into_iter().fold(failure, UserError::hint)
            }
            KclError::NoDataFolder => failure.hint("set HOME, or XDG_DATA_HOME to an absolute path"),
            KclError::Checksum { .. } => failure.hint(
                "run the command again; if it fails again, a proxy or mirror serves a file that differs from the published one: ask its operator",
            ),
            KclError::PackageDiffers { name, .. } => failure.hint(format!(
                "find out who changed the package: the source serves something else than what was pinned; if the change is intended, run `konverge kcl lock --update {name}` and commit kcl.mod.lock"
            ))
            .hint("a package with a module's binary has another checksum on each platform: lock it on the platform of the jobs"),
            KclError::UnknownPackage(_) => failure
                .hint("ask a maintainer to change kcl.mod and kcl.mod.lock in a branch of this repository, and merge that branch into this pull request")
                .hint("or commit the folder that `kcl mod vendor` writes beside kcl.mod, for everybody to review"),
            KclError::NotLocked { offline: true, .. } => failure
                .hint("with a network, run `konverge kcl lock` and commit kcl.mod.lock")
                .hint("or commit the folder that `kcl mod vendor` writes beside kcl.mod"),
            KclError::NotLocked { .. } => failure
                .hint("ask a maintainer to run `konverge kcl lock` on the target branch, and to commit kcl.mod.lock there")
                .hint("or to commit the folder that `kcl mod vendor` writes beside kcl.mod"),
            KclError::LockDiffers { .. } => failure
                .hint("run `konverge kcl lock` and commit kcl.mod.lock")
                .hint("if the new version is not intended, remove it from kcl.mod"),
            KclError::Offline(_) => failure
                .hint("run the command once without KONVERGE_OFFLINE, or commit the folder of `kcl mod vendor`"),
            KclError::Package { .. } => failure
                .hint("to compile without the network, commit the folder that `kcl mod vendor` writes beside kcl.mod"),
            KclError::Crash { why, .. } => match core_hints::hint_of_crash(&why) {
                Some(hint) => failure.hint(hint),
                None => failure,
            },
            KclError::Deadline { .. } => failure.hint("look for an endless loop or recursion; the limit is `kcl.timeout` in konverge.yaml"),
            KclError::Code(diagnostics) => {
                let mut failure = failure;
                if let Some(place) = diagnostics.first().and_then(|first| first.place.as_ref()) {
                    failure = failure.at(place.file.clone(), place.line, place.column);
                }
                failure.causes = diagnostics
                    .iter()
                    .zip(language_hints::hints(&diagnostics))
                    .map(|(diagnostic, hint)| Cause {
                        location: diagnostic.place.clone(),
                        message: match hint {
                            Some(hint) => with_hint(diagnostic.text(), &hint),
                            None => diagnostic.text(),
                        },
                    })
                    .collect();
                for hint in diagnostics.iter().filter_map(core_hints::hint) {
                    if !failure.hints.contains(&hint) {
                        failure = failure.hint(hint);
                    }
                }
                for hint in diagnostics.iter().flat_map(|diagnostic| &diagnostic.hints) {
                    if !failure.hints.contains(hint) {
                        failure = failure.hint(hint.clone());
                    }
                }
                failure
            }
            _ => failure,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::error::Location;

    #[test]
    fn what_is_said_of_many_places_is_said_once() {
        let at = |line, message: &str| KclDiagnostic {
            code: Some("E2L23".to_owned()),
            name: "CompileError".to_owned(),
            message: message.to_owned(),
            place: Some(Location {
                file: "base/a.k".to_owned(),
                line: Some(line),
                column: Some(1),
            }),
            source: Some("a = false".to_owned()),
            at_line_start: true,
            related: Vec::new(),
            hints: Vec::new(),
        };
        let mut all: Vec<_> = (1..=50)
            .map(|line| at(line, "name 'false' is not defined"))
            .collect();
        all.insert(20, at(99, "expected 2 positional arguments, found 1"));
        let failure = UserError::from(KclError::Code(all));
        assert_eq!(
            failure.message,
            "CompileError: name 'false' is not defined (and in 49 more places)\n    a = false\n    hint: KCL 0.4 took the \
             unknown name `false` for Undefined: write `False`\nbase/a.k:99:1: CompileError: expected 2 positional \
             arguments, found 1\n    hint: KCL 0.4 took an argument that is left out for Undefined: add `Undefined` to the \
             arguments of the call"
        );
        // Each at its place is for `check`.
        assert_eq!(failure.causes.len(), 51);
    }

    /// The message of a setup is one text: its test is in `repo::konfig::compile_setup`.
    #[test]
    fn who_is_told_to_use_the_kcl_command_is_told_how_to_get_it() {
        let name = || "models".to_owned();
        let unresolved = KclDiagnostic {
            code: None,
            name: "CannotFindModule".to_owned(),
            message: String::new(),
            place: None,
            source: None,
            at_line_start: false,
            related: Vec::new(),
            hints: vec!["try 'kcl mod add nope'".to_owned()],
        };
        let with_command = [
            KclError::UnknownPackage(name()),
            KclError::NotLocked {
                name: name(),
                offline: false,
            },
            KclError::Offline(name()),
            KclError::Package {
                name: name(),
                why: "".into(),
            },
            KclError::Code(vec![unresolved]),
        ];
        for error in with_command {
            let failure = UserError::from(error);
            assert!(
                failure.hints.iter().any(|hint| hint.contains("kcl mod ")),
                "{failure:?}"
            );
            assert_eq!(
                failure.hints.last().map(String::as_str),
                Some(GET_KCL),
                "{failure:?}"
            );
        }
        // The download of a core has nothing to do with that command.
        let download = KclError::Checksum {
            file: String::new(),
            found: String::new(),
            pinned: String::new(),
        };
        for error in [KclError::NoDataFolder, download] {
            let without = UserError::from(error);
            assert!(!without.hints.iter().any(|hint| hint == GET_KCL), "{without:?}");
        }
    }
}
