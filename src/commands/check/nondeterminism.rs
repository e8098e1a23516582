//! Finds functions that make a Spec depend on more than the repository: the clock, random numbers, the
//! network, the environment.

use std::collections::BTreeSet;

use konverge_base::model::{
    RepoPath,
    lint::{Diagnostic, LintRule},
    stack::{Entry, Stack},
};
use konverge_repo::affected;
use konverge_run::compiler::FileContents;

/// A system module, a function of it, and what that function depends on.
const FUNCTIONS: [(&str, &str, &str); 11] = [
    ("datetime", "now", "the clock"),
    ("datetime", "today", "the clock"),
    ("datetime", "ticks", "the clock"),
    ("datetime", "date", "the clock"),
    ("crypto", "uuid", "chance"),
    ("net", "fqdn", "the network"),
    (
        "file",
        "read_env",
        "the environment, which is empty when Konverge compiles",
    ),
    ("file", "workdir", "the location of the repository"),
    ("file", "current", "the location of the repository"),
    ("file", "modpath", "the location of the repository"),
    ("file", "abs", "the location of the repository"),
];

/// A system module and the name by which it is used.
type Name = (String, String);

/// Returns every use of a nondeterministic function in these files, with its position. Entries of one stack share their
/// imports.
pub(super) fn scan(files: &FileContents, stacks: &[&Stack]) -> Vec<Diagnostic> {
    let kcl: Vec<_> = files
        .iter()
        .filter(|(path, _)| path.file_name().ends_with(".k"))
        .collect();
    let own = |content: &[u8]| -> BTreeSet<Name> {
        let imports = affected::scan(content)
            .into_iter()
            .filter(|import| import.dots == 0);
        let name = |import: affected::Import| (import.path.clone(), plain(import.used_as()).to_owned());
        imports.map(name).collect()
    };
    // Entries of one stack are compiled together, so an import in one of them is visible in all.
    let shared: Vec<(&[Entry], BTreeSet<Name>)> = stacks
        .iter()
        .filter_map(|stack| Some(stack.compile.as_ref().ok()?.entries.as_slice()))
        .map(|entries| {
            let together = kcl.iter().filter(|(path, _)| is_entry(entries, path));
            (entries, together.flat_map(|(_, content)| own(content)).collect())
        })
        .collect();
    let mut remarks = Vec::new();
    for (path, content) in kcl {
        let mut names = own(content);
        let together = shared.iter().filter(|(entries, _)| is_entry(entries, path));
        names.extend(together.flat_map(|(_, names)| names.clone()));
        for member in affected::members(content) {
            let found = FUNCTIONS.iter().find(|(module, function, _)| {
                member.name == *function
                    && names
                        .iter()
                        .any(|(path, name)| path == module && name == plain(&member.of))
            });
            let Some((module, function, what)) = found else {
                continue;
            };
            let message =
                format!("`{module}.{function}` depends on {what}: the same commit can give different Specs");
            let remark = Diagnostic::new(path, LintRule::Irreproducible, &message)
                .at(Some(member.line), Some(member.column))
                .warning()
                .hint("pass the value as an option in kcl.yaml, where a review sees it");
            remarks.push(remark);
        }
    }
    remarks
}

/// Returns a name without the `$` that allows a keyword as a name.
fn plain(name: &str) -> &str {
    name.trim_start_matches('$')
}

/// Returns true if a file is one of a stack's entries, by itself or with its folder.
fn is_entry(entries: &[Entry], path: &RepoPath) -> bool {
    let folder = path.parent();
    entries
        .iter()
        .any(|entry| entry.path == *path || Some(&entry.path) == folder.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::stack::CompileSetup;

    fn path(text: &str) -> RepoPath {
        RepoPath::normalize(text).unwrap()
    }

    fn find_calls(files: &[(&str, &str)], entries: &[&str]) -> Vec<String> {
        let files: FileContents = files
            .iter()
            .map(|(name, text)| (path(name), text.as_bytes().into()))
            .collect();
        let setup = CompileSetup {
            entries: entries.iter().map(|entry| Entry::main(path(entry))).collect(),
            ..CompileSetup::default()
        };
        let stack = Stack {
            id: "p/s".parse().unwrap(),
            names: "p/s".parse().unwrap(),
            earlier_names: None,
            named_by: konverge_base::model::stack::NamedBy::Names,
            folder: path("p/s"),
            project_folder: path("p"),
            manifest: path("p/s/stack.yaml"),
            compile: Ok(setup),
            cluster: None,
            kubeconfig: None,
            reads: std::collections::BTreeMap::new(),
        };
        let place = |remark: Diagnostic| {
            let what = remark.message.split('`').nth(1).unwrap().to_owned();
            format!(
                "{what} {}:{}:{}",
                remark.file,
                remark.line.unwrap(),
                remark.column.unwrap()
            )
        };
        scan(&files, &[&stack]).into_iter().map(place).collect()
    }

    #[test]
    fn calls_are_found_at_their_place_and_comments_are_none() {
        let text = "import datetime\n# datetime.now()\na = 1\nb = datetime.now()\nc = crypto.uuid()\n";
        assert_eq!(find_calls(&[("a.k", text)], &[]), ["datetime.now a.k:4:5"]);
    }

    #[test]
    fn aliases_count_and_texts_do_not() {
        for (text, expected) in [
            (
                "import datetime as d\na = d.now()\n",
                vec!["datetime.now a.k:2:5"],
            ),
            (
                "import crypto as now\na = [now . uuid()]\n",
                vec!["crypto.uuid a.k:2:6"],
            ),
            (
                "import datetime\nf = datetime.now\na = f()\n",
                vec!["datetime.now a.k:2:5"],
            ),
            (
                "import datetime as d\na = \"at ${d.today()}\"\n",
                vec!["datetime.today a.k:2:11"],
            ),
            (
                "import datetime\na = \"datetime.now()\"\nb = r'datetime.now()'\n",
                vec![],
            ),
            (
                "import datetime as d\na = {datetime = {now = 1}}.datetime.now\n",
                vec![],
            ),
            (
                "import datetime as d\nimport crypto\na = crypto.sha256(\"x\") # d.now()\n",
                vec![],
            ),
            (
                "import datetime as $d\na = d.now()\n",
                vec!["datetime.now a.k:2:5"],
            ),
            ("import .datetime\na = datetime.now()\n", vec![]),
            ("import my.datetime\na = datetime.now()\n", vec![]),
        ] {
            assert_eq!(find_calls(&[("a.k", text)], &[]), expected, "{text}");
        }
    }

    #[test]
    fn entries_share_their_imports() {
        let files = [
            ("p/base/base.k", "import datetime as d\n"),
            ("p/s/main.k", "a = d.now()\n"),
        ];
        assert_eq!(
            find_calls(&files, &["p/base/base.k", "p/s/main.k"]),
            ["datetime.now p/s/main.k:1:5"]
        );
        assert_eq!(
            find_calls(&files, &["p/base", "p/s"]),
            ["datetime.now p/s/main.k:1:5"]
        );
        assert_eq!(find_calls(&files, &[]), Vec::<String>::new());
    }
}
