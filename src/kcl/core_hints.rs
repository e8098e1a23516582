//! Errors that a core of another version would not give. Every row was measured with the cores from 0.9.0 to 0.13.2 on
//! PyPI: the same program was run with each.

use super::{DEFAULT_VERSION, KclDiagnostic};

/// Members that earlier cores lack: who has it as the core names it, the member, the first core that has it.
const ADDED: [(&str, &str, &str); 9] = [
    ("module 'crypto'", "blake3", "0.10.0"),
    ("module 'datetime'", "validate", "0.10.0"),
    ("module 'file'", "current", "0.10.0"),
    ("module 'net'", "parse_CIDR", "0.11.1"),
    ("module 'net'", "is_IP_in_CIDR", "0.11.1"),
    ("module 'net'", "CIDR_subnet", "0.11.2"),
    ("module 'net'", "CIDR_host", "0.11.2"),
    ("module 'net'", "CIDR_netmask", "0.11.2"),
    ("str", "chars", "0.11.1"),
];

/// Members that later cores lack: who had it, the member, the last core that has it.
const REMOVED: [(&str, &str, &str); 1] = [("module 'net'", "to_IP16", "0.11.2")];

/// Modules that earlier cores lack, with the first core that has them.
const MODULES: [(&str, &str); 1] = [("base32", "0.11.2")];

/// What to try if a core of another version would not give this error.
pub(super) fn hint(diagnostic: &KclDiagnostic) -> Option<String> {
    let message = &diagnostic.message;
    if message.contains("escapes module root") {
        return Some(
            "cores before 0.13.1 read files outside of the folder of the program: try `kcl.version: 0.13.0` in konverge.yaml"
                .to_owned(),
        );
    }
    if message.starts_with("failed to access the file") && message.contains("No such file") {
        return Some(
            "cores since 0.13.1 start a relative path at the folder of the file that reads it, earlier ones at the \
             repository's root: write the path for the core that `kcl.version` in konverge.yaml names"
                .to_owned(),
        );
    }
    let module = MODULES
        .iter()
        .find(|(module, _)| message.contains(&format!("pkgpath {module} not found")));
    if let Some((module, since)) = module {
        return Some(added(&format!("the module `{module}`"), since));
    }
    let (member, owner) = missing_member(message)?;
    let row = |(of, name, _): &&(&str, &str, &str)| *name == member && is_owner(owner, of);
    if let Some((.., since)) = ADDED.iter().find(row) {
        return Some(added(&format!("`{member}`"), since));
    }
    if let Some((.., last)) = REMOVED.iter().find(row) {
        return Some(format!(
            "cores after {last} lack `{member}`: try `kcl.version: {last}` in konverge.yaml"
        ));
    }
    shadowed_folder(diagnostic, owner)
}

/// What to try if a core of another version would not end the compiler so.
pub(super) fn hint_of_crash(why: &str) -> Option<String> {
    why.contains("non-unwinding panic").then(|| {
        "the cores from 0.10.0 to 0.11.0 stop like this when a built-in function fails, without a position: try \
         `kcl.version: 0.11.1` or a later one in konverge.yaml"
            .to_owned()
    })
}

fn added(what: &str, since: &str) -> String {
    format!("cores before {since} lack {what}: try `kcl.version: {DEFAULT_VERSION}` in konverge.yaml")
}

/// `attribute 'chars' not found in 'str(a)'`, `attribute 'blake3' not found in 'module 'crypto''`.
fn missing_member(message: &str) -> Option<(&str, &str)> {
    let (member, owner) = message
        .strip_prefix("attribute '")?
        .split_once("' not found in '")?;
    Some((member, owner.strip_suffix('\'')?))
}

/// A text is named with its value: `str(a)`.
fn is_owner(owner: &str, known: &str) -> bool {
    owner == known || known == "str" && owner.starts_with("str(")
}

/// Since 0.13.0 `import math.x` is the system module `math`, whatever lies in a folder `math`. The line does not name the
/// module then, but the last part of the import.
fn shadowed_folder(diagnostic: &KclDiagnostic, owner: &str) -> Option<String> {
    let module = owner.strip_prefix("module '")?.strip_suffix('\'')?;
    let line = diagnostic.source.as_deref()?;
    (!line.contains(&format!("{module}."))).then(|| {
        format!(
            "if `import {module}.…` means a folder of the repository: cores since 0.13.0 take it for the system module \
             `{module}`; give the folder another name, or try `kcl.version: 0.12.5` in konverge.yaml"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(message: &str, source: &str) -> Option<String> {
        hint(&KclDiagnostic {
            code: None,
            name: "TypeError".to_owned(),
            message: message.to_owned(),
            place: None,
            source: Some(source.to_owned()),
            related: Vec::new(),
            hints: Vec::new(),
        })
    }

    #[test]
    fn an_error_that_another_core_would_not_give_names_that_core() {
        for (message, core) in [
            ("path '../a.txt' escapes module root '/r'", "0.13.0"),
            ("pkgpath base32 not found in the program", "0.13.2"),
            ("attribute 'blake3' not found in 'module 'crypto''", "0.13.2"),
            ("attribute 'parse_CIDR' not found in 'module 'net''", "0.13.2"),
            ("attribute 'chars' not found in 'str(a)'", "0.13.2"),
            ("attribute 'chars' not found in 'str'", "0.13.2"),
            ("attribute 'to_IP16' not found in 'module 'net''", "0.11.2"),
        ] {
            let hint = hints(message, "a = crypto.x + net.x").unwrap_or_default();
            assert!(
                hint.contains(&format!("try `kcl.version: {core}`")),
                "{message}: {hint}"
            );
        }
        let data = hints(
            "failed to access the file 'a.txt': No such file or directory (os error 2)",
            "",
        );
        assert!(data.is_some_and(|hint| hint.contains("0.13.1")));
        assert!(hint_of_crash("signal: 6 (SIGABRT) thread caused non-unwinding panic. aborting.").is_some());
    }

    #[test]
    fn other_errors_name_no_core() {
        for message in [
            "expected int, got str(b)",
            "attribute 'sqr' not found in 'module 'math''",
            "attribute 'chars' not found in 'int'",
            "attribute 'blake3' not found in 'A'",
        ] {
            assert_eq!(hints(message, "a = math.sqr(2)"), None, "{message}");
        }
        assert_eq!(hint_of_crash("signal: 11"), None);
    }

    #[test]
    fn a_folder_that_a_system_module_hides_is_told() {
        let hint = hints("attribute 'a' not found in 'module 'math''", "b = x.a").unwrap_or_default();
        assert!(
            hint.contains("`import math.…`") && hint.contains("0.12.5"),
            "{hint}"
        );
    }
}
