//! Options that people know from other tools, with the equivalent options of Konverge.

/// Returns what to type for an option that `konverge` does not have.
pub(super) fn hint(argument: &str) -> Option<&'static str> {
    let (option, _) = argument.split_once('=').unwrap_or((argument, ""));
    Some(match option {
        "--json" | "-json" => "`--output json`, or `-o json`, prints JSON",
        "--dry-run" | "--no-apply" => "`konverge preview` shows what an apply would do, and writes nothing",
        "--auto-approve" | "-auto-approve" | "--approve" | "--force" | "-y" => {
            "`--yes` applies and destroys without a question"
        }
        "--refresh-only" | "-refresh-only" => {
            "`konverge drift` compares what is live with what was applied last"
        }
        "--detailed-exitcode" | "-detailed-exitcode" => "`--exit-code` ends with 2 if anything would change",
        "--target" | "-target" => "name the stacks: `konverge preview storefront/dev`",
        "--workdir" | "-w" | "--chdir" | "-chdir" | "-C" => "`--repo DIR` names the repository",
        "--filename" | "--file" | "-f" => "`--spec FILE` takes a Spec from a file",
        "--kube-context" => "`--kubeconfig FILE --context NAME` names a cluster",
        "--no-color" | "--no-style" => "`--color never` prints without colors, as does NO_COLOR",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// A hint names only options that exist, for an option that does not: clap would accept an existing one, and never
    /// show the hint.
    #[test]
    fn hints_name_what_exists() {
        for (option, typed) in [
            ("--json", ["preview", "--output", "json"].as_slice()),
            ("--dry-run", &["preview"]),
            ("--auto-approve", &["apply", "a/b", "--yes"]),
            ("-refresh-only", &["drift"]),
            ("--detailed-exitcode", &["preview", "--exit-code"]),
            ("--target=x", &["preview", "storefront/dev"]),
            ("--chdir", &["preview", "--repo", "."]),
            ("-f", &["preview", "--spec", "x.yaml"]),
            (
                "--kube-context",
                &["apply", "--kubeconfig", "f", "--context", "c"],
            ),
            ("--no-color", &["preview", "--color", "never"]),
        ] {
            let hint = hint(option).unwrap();
            let words = typed.iter().filter(|word| word.starts_with("--"));
            assert!(words.into_iter().all(|word| hint.contains(word)), "{hint}");
            let parse = |words: &[&str]| Cli::command().try_get_matches_from([&["konverge"], words].concat());
            assert!(parse(typed).is_ok(), "{typed:?}");
            assert!(parse(&["apply", option]).is_err(), "{option}");
        }
        assert_eq!(hint("--output"), None);
    }
}
