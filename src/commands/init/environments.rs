//! `init --environments`: an apply job for each environment, and the rules that give stacks their environment.

use std::collections::BTreeSet;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{RepoPath, stack::Stack},
};
use konverge_config::Config;
use konverge_repo::konfig::Layout;
use serde_json::json;

use super::answers::scalar;

/// The line of the workflow before which the matrix is inserted.
const APPLY: &str = "    if: github.event_name == 'push' || (github.event_name == 'workflow_dispatch' && inputs.approve != '')\n";
const GROUP: &str = "      group: konverge-apply${{";
const ENVIRONMENT: &str =
    "    # environment: production # for an approval by people before anything is written\n";
const INPUT: &str =
    "# with: { environment: production } # the one above, which GitHub does not expose to jobs\n";

/// Checks the names of environments, which are written unquoted.
///
/// # Errors
/// A name is empty, too long, or given twice, or GitHub would read it as an expression.
pub(super) fn check(names: &[String]) -> Result<(), UserError> {
    let mut seen = BTreeSet::new();
    let is_name = |name: &str| {
        !name.is_empty() && name.len() <= 255 && !name.contains("${{") && !name.chars().any(char::is_control)
    };
    match names
        .iter()
        .find(|name| !is_name(name) || !seen.insert(name.as_str()))
    {
        Some(name) => Err(UserError::new(
            ErrorKind::Usage,
            format!("`{}` is not the name of another environment", name.escape_debug()),
        )
        .hint("write each environment once, in the order of the applies: `--environments dev,production`")),
        None => Ok(()),
    }
}

/// Returns the workflow with an apply job for each environment, one after the other.
pub(super) fn workflow(workflow: &str, names: &[String]) -> String {
    if names.is_empty() {
        return workflow.to_owned();
    }
    let list: Vec<_> = names.iter().map(|name| scalar(name)).collect();
    let matrix = format!(
        "{APPLY}    # One environment after the other. If one fails, the next ones apply what does not come after it.\n    strategy:\n      fail-fast: false\n      max-parallel: 1\n      matrix:\n        environment: [{}]\n    # GitHub asks its reviewers, and tells the clouds its name.\n    environment: ${{{{ matrix.environment }}}}\n",
        list.join(", ")
    );
    let input = "with: { environment: \"${{ matrix.environment }}\", for-environment: \"${{ matrix.environment }}\" }\n";
    workflow
        .replace(APPLY, &matrix)
        .replace(GROUP, "      group: konverge-apply-${{ matrix.environment }}${{")
        .replace(ENVIRONMENT, "")
        .replace(INPUT, input)
        .replace(
            "          # environment: production # the one above, which GitHub does not expose to jobs\n",
            "          environment: ${{ matrix.environment }}\n          for-environment: ${{ matrix.environment }}\n",
        )
}

/// The usual names of folders of stacks, by stage: test stages first, production last.
const STAGES: [&[&str]; 4] = [
    &["dev", "develop", "development"],
    &["test", "testing", "qa", "sit"],
    &["staging", "stage", "uat", "pre", "preprod"],
    &["prod", "production", "prd"],
];

/// Returns the rules of `konverge.yaml` that apply one stage after the other; empty unless the folders of stacks have
/// names of stages, and production is one of them.
pub(super) fn order(layout: &Layout) -> String {
    let folders = stack_folders(layout);
    let stages = STAGES.map(|names| {
        let named = names.iter().filter(|name| folders.contains(**name));
        named.map(|name| format!("**/{name}")).collect::<Vec<_>>()
    });
    let (mut rules, mut earlier) = (String::new(), Vec::new());
    if stages.last().is_some_and(|production| !production.is_empty()) {
        for stage in stages {
            for name in stage.iter().filter(|_| !earlier.is_empty()) {
                rules.push_str(&format!(
                    "  - match: {}\n    after: {}\n",
                    json!(name),
                    json!(earlier)
                ));
            }
            earlier.extend(stage);
        }
    }
    if rules.is_empty() {
        return rules;
    }
    format!("  # A stack waits for those before it, and is skipped if one of them fails.\n{rules}")
}

/// Returns the key `production` of `konverge.yaml`: the folders of stacks with such a name, or an example.
pub(super) fn production(layout: &Layout) -> String {
    let [.., names] = STAGES;
    let by_word = Config::default().production_folders();
    let says_production =
        |part: &str| names.contains(&part) || by_word.contains(&RepoPath::root().child(part));
    let glob = |stack: &Stack| {
        let parts: Vec<_> = stack.folder.as_str().split('/').collect();
        let at = parts.iter().rposition(|part| says_production(part))?;
        let below = if at + 1 == parts.len() { "" } else { "/**" };
        Some(format!("**/{}{below}", globset::escape(parts[at])))
    };
    let globs: BTreeSet<_> = layout.stacks.iter().filter_map(glob).collect();
    let key = if globs.is_empty() {
        "# production: ['**/prod']".to_owned()
    } else {
        format!("production: {}", json!(globs))
    };
    format!(
        "# The folders of production: previews show their stacks first, and count them. Without this key a folder with the word \
         `prod` is one.\n{key}\n\n"
    )
}

fn stack_folders(layout: &Layout) -> BTreeSet<&str> {
    let stacks = layout.stacks.iter();
    stacks.map(|stack| stack.folder.file_name()).collect()
}

/// Returns the rules of `konverge.yaml` that assign environments: by folders with the name of an environment, or with
/// the beginning of it. For an environment without such a folder the rule is a comment.
pub(super) fn rules(names: &[String], layout: &Layout) -> String {
    let folders = stack_folders(layout);
    let of = |name: &String| {
        let exact = folders.iter().find(|folder| **folder == name.as_str());
        let is_short =
            |folder: &&&str| folder.len() > 2 && (name.starts_with(**folder) || folder.starts_with(name));
        exact.or_else(|| folders.iter().find(is_short)).copied()
    };
    let rule = |name: &String| match of(name) {
        Some(folder) => format!(
            "  - match: {}\n    environment: {}\n",
            serde_json::Value::from(format!("**/{folder}")),
            scalar(name)
        ),
        None => format!("  # - match: appops/*/…\n  #   environment: {}\n", scalar(name)),
    };
    names.iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::init::WORKFLOW;
    use konverge_base::{
        model::stack::{CompileSetup, NamedBy},
        yaml,
    };
    use serde_json::Value;

    #[test]
    fn each_environment_has_a_job_of_its_own() {
        let names = ["dev", "production", "eu west: 1"].map(str::to_owned);
        let text = workflow(WORKFLOW, &names);
        let read: Value = yaml::from_str(&text).unwrap();
        let apply = &read["jobs"]["apply"];
        assert_eq!(apply["strategy"]["matrix"]["environment"], json!(names));
        assert_eq!(apply["strategy"]["max-parallel"], 1);
        assert_eq!(apply["strategy"]["fail-fast"], false);
        assert_eq!(apply["environment"], "${{ matrix.environment }}");
        let group = apply["concurrency"]["group"].as_str().unwrap();
        assert!(
            group.starts_with("konverge-apply-${{ matrix.environment }}"),
            "{group}"
        );
        let with = &apply["steps"][1]["with"];
        assert_eq!(with["for-environment"], "${{ matrix.environment }}");
        assert_eq!(with["environment"], "${{ matrix.environment }}");
        for other in ["preview", "drift"] {
            assert_eq!(read["jobs"][other]["strategy"], Value::Null, "{other}");
        }
        assert_eq!(workflow(WORKFLOW, &[]), WORKFLOW);
    }

    #[test]
    fn production_is_what_the_folders_of_stacks_are_called() {
        let stack = |folder: &&str| {
            let folder = RepoPath::normalize(folder).unwrap();
            Stack {
                id: "a/b".parse().unwrap(),
                names: "a/b".parse().unwrap(),
                earlier_names: None,
                named_by: NamedBy::Names,
                manifest: folder.child("stack.yaml"),
                project_folder: folder.clone(),
                folder,
                compile: Ok(CompileSetup::default()),
                cluster: None,
                kubeconfig: None,
                reads: std::collections::BTreeMap::new(),
            }
        };
        let production = |folders: &[&str]| {
            let text = production(&Layout {
                stacks: folders.iter().map(stack).collect(),
                ..Layout::default()
            });
            let config = Config::parse(&text).unwrap();
            let is_production = |folder: &&&str| {
                let folder = RepoPath::normalize(folder).unwrap();
                config.production_folders().contains(&folder)
            };
            let found: Vec<_> = folders.iter().filter(is_production).copied().collect();
            (config.production.len(), found.len())
        };
        let folders = [
            "a/prod",
            "a/prod-eu",
            "a/dev",
            "b/prd",
            "prod/eu/c",
            "prod/us/d",
            "a/pre-prod",
        ];
        assert_eq!(production(&folders), (4, 5));
        // Without one, the key is an example.
        assert_eq!(production(&["a/dev"]), (0, 0));
    }

    #[test]
    fn names_that_github_would_read_otherwise_are_refused() {
        for wrong in [&["dev", "dev"][..], &[""], &["${{ secrets.X }}"], &["a\nb"]] {
            let names: Vec<_> = wrong.iter().map(|name| (*name).to_owned()).collect();
            assert!(check(&names).is_err(), "{wrong:?}");
        }
        check(&["dev".to_owned(), "prod eu".to_owned()]).unwrap();
    }
}
