//! Functions that make a Spec depend on more than the repository: the clock, chance, the network, the environment.

use super::{remark, tools::Files};
use crate::model::inspection::{Remark, Rule, Severity};

/// System module, function, what it depends on.
const FUNCTIONS: [(&str, &str, &str); 8] = [
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
    ("file", "workdir", "where the repository lies"),
];

/// Every call in these files, with its place.
pub(super) fn scan(files: &Files) -> Vec<Remark> {
    let mut remarks = Vec::new();
    for (path, content) in files.iter().filter(|(path, _)| path.file_name().ends_with(".k")) {
        let text = String::from_utf8_lossy(content);
        for (module, function, what) in FUNCTIONS {
            if !text
                .lines()
                .any(|line| line.trim_start().starts_with(&format!("import {module}")))
            {
                continue;
            }
            let call = format!("{module}.{function}(");
            for (number, line) in text.lines().enumerate() {
                let code = line.split('#').next().unwrap_or_default();
                if let Some(column) = code.find(&call) {
                    let message = format!(
                        "`{module}.{function}` depends on {what}: the same commit gives another Spec"
                    );
                    let mut remark = remark(path, Rule::Irreproducible, &message)
                        .at(u32::try_from(number + 1).ok(), u32::try_from(column + 1).ok());
                    remark.severity = Severity::Warning;
                    remark.hint =
                        Some("pass the value as an option in kcl.yaml, where a review sees it".to_owned());
                    remarks.push(remark);
                }
            }
        }
    }
    remarks
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::RepoPath;

    #[test]
    fn calls_are_found_at_their_place_and_comments_are_none() {
        let text = "import datetime\n# datetime.now()\na = 1\nb = datetime.now()\nc = crypto.uuid()\n";
        let files: Files = vec![(RepoPath::normalise("a.k").unwrap(), text.as_bytes().into())];
        let found = scan(&files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].line, found[0].column), (Some(4), Some(5)));
    }
}
