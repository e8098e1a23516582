//! The core's own tools, behind the same walls: format, lint, test.

use std::path::Path;

use prost::Message;

use super::{
    CompileRequest, Diagnostic, KclError, Pool, diagnostic,
    pool::Answer,
    protocol::{
        ExecProgramArgs, FormatPathArgs, FormatPathResult, LintPathArgs, LintPathResult, Status, TestArgs,
        TestResult,
    },
};
use crate::model::RepoPath;

/// How one test of the repository ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestCase {
    /// Its name, `test_…`.
    pub name: String,
    /// Why it failed; empty if it passed.
    pub errors: Vec<Diagnostic>,
}

impl Pool {
    /// The files of the request that `kcl fmt` would change.
    ///
    /// # Errors
    /// The core refuses, or the worker is lost.
    pub async fn unformatted(&self, request: &CompileRequest) -> Result<Vec<RepoPath>, KclError> {
        let message = |root: &Path| FormatPathArgs {
            path: format!("{}/...", root.display()),
            dry_run: true,
        };
        let answer = self.exchange(request, "FormatPath", message).await?;
        let (result, root) = decoded::<FormatPathResult>(request, answer)?;
        let relative =
            |path: String| RepoPath::normalise(Path::new(&path).strip_prefix(&root).ok()?.to_str()?);
        Ok(result.changed_paths.into_iter().filter_map(relative).collect())
    }

    /// What the core's linter says of one file of the request.
    ///
    /// # Errors
    /// The core refuses, or the worker is lost.
    pub async fn lint(&self, request: &CompileRequest, file: &RepoPath) -> Result<Vec<String>, KclError> {
        let message = |root: &Path| LintPathArgs {
            paths: vec![root.join(file).display().to_string()],
        };
        let answer = self.exchange(request, "LintPath", message).await?;
        let (result, root) = decoded::<LintPathResult>(request, answer)?;
        Ok(result
            .results
            .iter()
            .map(|text| diagnostic::plain(text, &root))
            .collect())
    }

    /// Runs the tests (`*_test.k`) in one folder of the request.
    ///
    /// # Errors
    /// The core refuses, or the worker is lost. A failed test is no error.
    pub async fn test(&self, request: &CompileRequest, folder: &RepoPath) -> Result<Vec<TestCase>, KclError> {
        let message = |root: &Path| {
            let folder = root.join(folder).display().to_string();
            TestArgs {
                exec_args: Some(ExecProgramArgs {
                    work_dir: folder.clone(),
                    ..ExecProgramArgs::default()
                }),
                pkg_list: vec![folder],
            }
        };
        let answer = self.exchange(request, "Test", message).await?;
        let (result, root) = decoded::<TestResult>(request, answer)?;
        let case = |info: super::protocol::TestCaseInfo| TestCase {
            name: info.name,
            errors: match info.error.as_str() {
                "" => Vec::new(),
                error => diagnostic::read(error, &root),
            },
        };
        Ok(result.info.into_iter().map(case).collect())
    }
}

fn decoded<R: Message + Default>(
    request: &CompileRequest,
    (status, body, root): Answer,
) -> Result<(R, std::path::PathBuf), KclError> {
    let text = String::from_utf8_lossy(&body);
    match status {
        Status::Done => {
            let result = R::decode(body.as_slice()).map_err(|error| KclError::Answer(error.to_string()))?;
            Ok((result, root))
        }
        Status::Refused => Err(KclError::Code(diagnostic::read(&text, &root))),
        Status::Panicked => Err(KclError::Crash {
            label: request.label.clone(),
            why: diagnostic::plain(&text, &root).trim().to_owned(),
        }),
    }
}
