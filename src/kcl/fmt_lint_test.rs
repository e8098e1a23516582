//! The core's own tools in the same sandbox: format, lint, test.

use std::path::Path;

use prost::Message;

use super::{
    CompileRequest, KclDiagnostic, KclError, Pool, diagnostic,
    pool::WorkerAnswer,
    protocol::{FormatCodeArgs, FormatCodeResult, LintPathArgs, LintPathResult, WorkerStatus},
};
use crate::model::{
    RepoPath,
    stack::{CompileSetup, Entry},
};

/// The result of one KCL test of the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestCase {
    /// Its name, `test_…`.
    pub name: String,
    /// Why it failed; empty if it passed.
    pub errors: Vec<KclDiagnostic>,
}

impl Pool {
    /// Returns true if `kcl fmt` would not change a text.
    ///
    /// # Errors
    /// The core refuses (the text is not KCL), or the worker is lost.
    pub async fn is_formatted(&self, request: &CompileRequest, text: &str) -> Result<bool, KclError> {
        let message = |_: &Path| FormatCodeArgs {
            source: text.to_owned(),
        };
        let answer = self.exchange(request, "FormatCode", message).await?;
        let (result, _) = decode::<FormatCodeResult>(request, answer)?;
        Ok(result.formatted == text.as_bytes())
    }

    /// The messages of the core's linter for one file of the request.
    ///
    /// # Errors
    /// The core refuses, or the worker is lost.
    pub async fn lint(&self, request: &CompileRequest, file: &RepoPath) -> Result<Vec<String>, KclError> {
        let message = |root: &Path| LintPathArgs {
            paths: vec![root.join(file).display().to_string()],
        };
        let answer = self.exchange(request, "LintPath", message).await?;
        let (result, root) = decode::<LintPathResult>(request, answer)?;
        Ok(result
            .results
            .iter()
            .map(|text| diagnostic::plain(text, &root))
            .collect())
    }

    /// Runs the tests (`*_test.k`) in one folder of the request. Each is a program of its own: the files of
    /// the folder and a call of the test. The core's own test runner writes such a file beside the tests,
    /// which the sandbox forbids.
    ///
    /// # Errors
    /// A worker is lost. A failed test is not an error.
    pub async fn test(&self, request: &CompileRequest, folder: &RepoPath) -> Result<Vec<TestCase>, KclError> {
        let in_folder = |path: &RepoPath| path.parent().as_ref() == Some(folder);
        let mut entries = Vec::new();
        let mut names = Vec::new();
        for (path, content) in request.files.iter().filter(|(path, _)| in_folder(path)) {
            let name = path.file_name();
            if name.ends_with(".k") && !name.starts_with('_') {
                entries.push(Entry::main(path.clone()));
            }
            if name.ends_with("_test.k") {
                names.extend(tests_of(&String::from_utf8_lossy(content)));
            }
        }
        let call = folder.child("_konverge_test.k");
        entries.push(Entry::main(call.clone()));
        let mut program = request.clone();
        program.setup = CompileSetup {
            work_dir: folder.clone(),
            entries,
            ..CompileSetup::default()
        };
        let cases = names.into_iter().map(|name| {
            let mut program = program.clone();
            program.label = format!("{folder}: {name}");
            program
                .files
                .push((call.clone(), format!("{name}()\n").into_bytes().into()));
            async move {
                let errors = match self.compile(&program).await {
                    Ok(_) => Vec::new(),
                    Err(KclError::Code(errors)) => errors,
                    Err(other) => return Err(other),
                };
                Ok(TestCase { name, errors })
            }
        });
        futures::future::try_join_all(cases).await
    }
}

/// The tests in a file: `test_… = lambda` at the start of a line.
fn tests_of(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let (name, rest) = line.split_once('=')?;
        let name = name.trim_end();
        let is_name = name.starts_with("test_") && name.chars().all(|c| c.is_alphanumeric() || c == '_');
        (is_name && rest.trim_start().starts_with("lambda")).then(|| name.to_owned())
    };
    text.lines().filter_map(name).collect()
}

fn decode<R: Message + Default>(
    request: &CompileRequest,
    (status, body, root): WorkerAnswer,
) -> Result<(R, std::path::PathBuf), KclError> {
    let text = String::from_utf8_lossy(&body);
    match status {
        WorkerStatus::Done => {
            let result = R::decode(body.as_slice()).map_err(|error| KclError::Answer(error.to_string()))?;
            Ok((result, root))
        }
        WorkerStatus::Refused => Err(KclError::Code(diagnostic::read(&text, &root))),
        WorkerStatus::Panicked => Err(KclError::Crash {
            label: request.label.clone(),
            why: diagnostic::plain(&text, &root).trim().to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_lambdas_at_the_start_of_a_line() {
        let text = "import x\ntest_a = lambda {\n    test_b = lambda {}\n}\ntest_c=lambda {}\ntest_d = 1\n# test_e = lambda {}\n";
        assert_eq!(tests_of(text), ["test_a", "test_c"]);
    }
}
