//! The KCL tests of a repository, run as the core's own runner ran them, in the same sandbox.

use super::{CompileRequest, KclDiagnostic, KclError, Pool};
use konverge_base::model::{RepoPath, stack::Entry};

/// The result of one KCL test of the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestCase {
    /// Its name, `test_…` or `Test…`.
    pub name: String,
    /// The file that holds it.
    pub file: RepoPath,
    /// How it ended.
    pub outcome: TestOutcome,
}

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestOutcome {
    /// It holds.
    Passed,
    /// It fails.
    Failed(Vec<KclDiagnostic>),
    /// It cannot be run, and why.
    NotRun(String),
}

impl Pool {
    /// Runs the tests (`*_test.k`) in one folder of the request. Each is a program of its own: the files of
    /// the folder and a call of the test. The core's own test runner writes such a file beside the tests,
    /// which the sandbox forbids. Schemas `Test…` are tests of the runner before KCL 0.9 and are instantiated,
    /// as that runner did.
    ///
    /// # Errors
    /// A worker is lost. A failed test is not an error.
    pub async fn test(&self, request: &CompileRequest, folder: &RepoPath) -> Result<Vec<TestCase>, KclError> {
        let in_folder = |path: &RepoPath| path.parent().as_ref() == Some(folder);
        let mut entries = Vec::new();
        let mut tests = Vec::new();
        for (path, content) in request.files.iter().filter(|(path, _)| in_folder(path)) {
            let name = path.file_name();
            let text = String::from_utf8_lossy(content);
            if name.ends_with("_test.k") {
                tests.extend(find_tests(&text).into_iter().map(|test| (path.clone(), test)));
            } else if text.contains(IGNORE) {
                return Ok(Vec::new());
            }
            if name.ends_with(".k") && !name.starts_with('_') {
                entries.push(Entry::main(path.clone()));
            }
        }
        let main = folder.child("_konverge_test.k");
        entries.push(Entry::main(main.clone()));
        let mut program = request.clone();
        program.setup.work_dir = folder.clone();
        program.setup.entries = entries;
        let cases = tests.into_iter().map(|(file, test)| {
            let mut program = program.clone();
            program.label = format!("{folder}: {}", test.name);
            program
                .files
                .push((main.clone(), test.call().into_bytes().into()));
            async move {
                let outcome = if test.needs_testing_module {
                    TestOutcome::NotRun(
                        "`import testing` was a module of cores before 0.9: pass values in the test itself"
                            .to_owned(),
                    )
                } else {
                    match self.compile(&program).await {
                        Ok(_) => TestOutcome::Passed,
                        Err(KclError::Code(errors)) => TestOutcome::Failed(errors),
                        Err(other) => return Err(other),
                    }
                };
                let name = test.name;
                Ok(TestCase { name, file, outcome })
            }
        });
        futures::future::try_join_all(cases).await
    }
}

/// In a folder that has this in a file, earlier cores' runner ran no test.
const IGNORE: &str = "# kcl-test: ignore";

/// A test in a file.
#[derive(Debug, PartialEq, Eq)]
struct Test {
    name: String,
    is_schema: bool,
    /// Whether its file imports the module `testing`, which no core that Konverge works with has.
    needs_testing_module: bool,
}

impl Test {
    /// The file that runs it.
    fn call(&self) -> String {
        if self.is_schema {
            format!("_konverge_test = {} {{}}\n", self.name)
        } else {
            format!("{}()\n", self.name)
        }
    }
}

/// The tests in a file: `test_… = lambda` and `schema Test…` at the start of a line.
fn find_tests(text: &str) -> Vec<Test> {
    let is_name = |name: &str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let lambda = |line: &str| {
        let (name, rest) = line.split_once('=')?;
        let name = name.trim_end();
        let is_test = name.starts_with("test_") && is_name(name) && rest.trim_start().starts_with("lambda");
        is_test.then(|| name.to_owned())
    };
    let schema = |line: &str| {
        let rest = line.strip_prefix("schema ")?.trim_start();
        let name = rest.split(['(', '[', ':', ' ']).next()?;
        (name.starts_with("Test") && is_name(name)).then(|| name.to_owned())
    };
    let imports = |line: &str| line.split_whitespace().take(2).eq(["import", "testing"]);
    let needs_testing_module = text.lines().any(imports);
    let test = |line: &str| {
        let (name, is_schema) = match lambda(line) {
            Some(name) => (name, false),
            None => (schema(line)?, true),
        };
        Some(Test {
            name,
            is_schema,
            needs_testing_module,
        })
    };
    text.lines().filter_map(test).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_lambdas_and_schemas_at_the_start_of_a_line() {
        let text = "import x\ntest_a = lambda {\n    test_b = lambda {}\n}\ntest_c=lambda {}\ntest_d = 1\n# test_e = lambda {}\n\
                    schema TestF:\n    a = 1\nschema TestG(Base):\nschema Other:\n    schema TestH:\n";
        let names =
            |text: &str| -> Vec<String> { find_tests(text).into_iter().map(|test| test.call()).collect() };
        assert_eq!(
            names(text),
            [
                "test_a()\n",
                "test_c()\n",
                "_konverge_test = TestF {}\n",
                "_konverge_test = TestG {}\n"
            ]
        );
        let old = find_tests("import testing as t\nschema TestF:\n    t.arguments(\"a\", 1)\n");
        assert!(old[0].needs_testing_module);
    }
}
