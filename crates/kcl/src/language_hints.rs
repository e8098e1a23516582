//! Hints for errors of code that was written for KCL 0.4: what changed, and what to write instead. The suggested code
//! of each hint was tried with the cores from 0.9.1 to 0.13.2.

use super::{KclDiagnostic, core_hints, diagnostic::NO_PLUGINS};

/// Constants that other languages write differently: the wrong name, and KCL's name.
const CONSTANTS: [(&str, &str); 6] = [
    ("true", "True"),
    ("false", "False"),
    ("null", "None"),
    ("nil", "None"),
    ("none", "None"),
    ("undefined", "Undefined"),
];

/// Returns a hint, or `None`, for each of the errors of one compilation.
pub(super) fn hints(diagnostics: &[KclDiagnostic]) -> Vec<Option<String>> {
    let follows = diagnostics.iter().any(core_hints::is_import_name_clash);
    let one = |diagnostic| {
        if follows {
            // If a declaration has the name of an import, every use of that name fails. Hints about those errors would
            // be misleading.
            of_name(diagnostic)
        } else {
            of_name(diagnostic).or_else(|| of_value(diagnostic))
        }
    };
    diagnostics.iter().map(one).collect()
}

/// Returns a hint for a name that no core since 0.9 knows.
fn of_name(diagnostic: &KclDiagnostic) -> Option<String> {
    let message = diagnostic.message.as_str();
    if message.contains(NO_PLUGINS) {
        return Some(
            "pass the value as an option: write it under `kcl_options` of the stack's kcl.yaml or ci-test/settings.yaml (what \
             the plugin read from project.yaml too), and read it by `option(\"NAME\")`"
                .to_owned(),
        );
    }
    let name = quoted(message, "name '")?;
    if !message[name.len()..].contains("' is not defined") {
        return None;
    }
    if let Some((_, constant)) = CONSTANTS.iter().find(|(written, _)| *written == name) {
        return Some(format!(
            "KCL 0.4 took the unknown name `{name}` for Undefined: write `{constant}`"
        ));
    }
    let negated = name.strip_prefix("not").filter(|rest| !rest.is_empty())?;
    let is_known = message.contains(&format!("\"{negated}\""));
    is_known.then(|| format!("KCL 0.4 read `{name}` as `not {negated}`: write `not {negated}`"))
}

/// Returns a hint for a value that only KCL 0.4 accepted.
fn of_value(diagnostic: &KclDiagnostic) -> Option<String> {
    let message = diagnostic.message.as_str();
    missing_argument(message)
        .or_else(|| other_type(diagnostic))
        .or_else(|| assigned_twice(diagnostic))
        .or_else(|| undeclared_member(message))
        .or_else(|| required_attribute(message))
}

/// Returns a hint for `expected 2 positional arguments, found 1`.
fn missing_argument(message: &str) -> Option<String> {
    let (wanted, found) = message
        .strip_prefix("expected ")?
        .split_once(" positional argument")?;
    let found = found.rsplit_once("found ")?.1;
    let (wanted, found): (usize, usize) = (wanted.parse().ok()?, found.parse().ok()?);
    let missing = wanted.checked_sub(found).filter(|missing| *missing > 0)?;
    let values = vec!["Undefined"; missing.min(4)].join(", ");
    Some(format!(
        "KCL 0.4 took an argument that is left out for Undefined: add `{values}` to the arguments of the call"
    ))
}

/// Returns a hint for `expected Deployment, got StatefulSet` if a variable is assigned a second time.
fn other_type(diagnostic: &KclDiagnostic) -> Option<String> {
    let (first, second) = diagnostic
        .message
        .strip_prefix("expected ")?
        .split_once(", got ")?;
    let variable = assigned_variable(diagnostic.source.as_deref()?)?;
    // If the error names the position of a declaration, the type was declared explicitly, and the hint does not apply.
    if !diagnostic.at_line_start || !diagnostic.related.is_empty() {
        return None;
    }
    let (first, second) = (type_of(first)?, type_of(second)?);
    Some(format!(
        "a variable keeps the type of its first value, which KCL 0.4 did not ask for: write both types where `{variable}` gets \
         its first value, `{variable}: {first} | {second} = …` (the name of a schema with the alias of its package)"
    ))
}

/// Returns a hint for `Can not change the value of 'mysql', because it was declared immutable`.
fn assigned_twice(diagnostic: &KclDiagnostic) -> Option<String> {
    let name = quoted(&diagnostic.message, "Can not change the value of '")?;
    let declared = diagnostic.related.first().map(|(place, _)| place);
    let place = diagnostic.place.as_ref();
    let elsewhere = declared.filter(|declared| place.is_some_and(|place| place.file != declared.file));
    Some(match elsewhere {
        Some(declared) => format!(
            "KCL 0.4 merged what several files assign to one name: write `{name}: SCHEMA {{…}}` with `:` here, which is merged \
             with the one in {}",
            declared.file
        ),
        None => format!(
            "a name that does not begin with `_` is assigned once: write `{name}: SCHEMA {{…}}` with `:` to merge the second value \
             into the first, or call it `_{name}`"
        ),
    })
}

/// Returns a hint for `Cannot add member 'y' to schema 'A'`, until 0.10.8 also `No attribute named 'y' in the schema
/// 'A'`.
fn undeclared_member(message: &str) -> Option<String> {
    let (member, schema) = match quoted(message, "Cannot add member '") {
        Some(member) => (member, " to schema '"),
        None => (quoted(message, "No attribute named '")?, " in the schema '"),
    };
    let schema = quoted(&message[message.find(schema)?..], schema)?;
    // The core's message already suggests the right name.
    if message.contains("did you mean") {
        return Some(format!(
            "correct the name, or declare `{member}` in the schema `{schema}`"
        ));
    }
    Some(format!(
        "a schema has the members that it declares, KCL 0.4 took others too: remove `{member}`, or declare it in `{schema}` \
         (`[...str]: any` there takes any member)"
    ))
}

/// Returns a hint for `attribute 'ports' of Ingress is required and can't be None or Undefined`.
fn required_attribute(message: &str) -> Option<String> {
    let attribute = quoted(message, "attribute '")?;
    let (schema, _) = message
        .split_once("' of ")?
        .1
        .split_once(" is required and can't be None")?;
    Some(format!(
        "give `{attribute}` a value where a `{schema}` is made; or, if None is meant, as KCL 0.4 took it, make it optional: \
         `{attribute}?:` in the schema `{schema}`"
    ))
}

/// Returns the variable in a line such as `_workload = appsv1.StatefulSet {`.
fn assigned_variable(line: &str) -> Option<&str> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim_end();
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.is_empty();
    (is_name && !value.starts_with('=')).then_some(name)
}

/// Returns the type that a message of KCL names. For a literal, KCL adds the value, as in `str(x)`.
fn type_of(text: &str) -> Option<&str> {
    let name = text.split('(').next()?.trim();
    let plain = !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_.[]".contains(c));
    plain.then_some(name)
}

/// Returns the name in single quotes that follows `before` at the start of the message.
fn quoted<'a>(message: &'a str, before: &str) -> Option<&'a str> {
    message.strip_prefix(before)?.split('\'').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::error::Location;

    fn at(file: &str) -> Location {
        Location {
            file: file.to_owned(),
            line: Some(1),
            column: Some(1),
        }
    }

    fn diagnostic(message: &str, source: &str) -> KclDiagnostic {
        KclDiagnostic {
            code: None,
            name: "CompileError".to_owned(),
            message: message.to_owned(),
            place: Some(at("dev/main.k")),
            source: Some(source.to_owned()),
            at_line_start: true,
            related: Vec::new(),
            hints: Vec::new(),
        }
    }

    fn hint(message: &str, source: &str) -> String {
        hints(&[diagnostic(message, source)])
            .remove(0)
            .unwrap_or_default()
    }

    #[test]
    fn each_error_says_what_to_write() {
        for (message, source, write) in [
            ("name 'true' is not defined", "a = true", "write `True`"),
            (
                "name 'null' is not defined, did you mean '[\"isnullish\"]'?",
                "a = null",
                "write `None`",
            ),
            (
                "name 'notfieldRef' is not defined, did you mean '[\"fieldRef\"]'?",
                "notfieldRef, \"m\"",
                "write `not fieldRef`",
            ),
            (
                "expected 2 positional arguments, found 1",
                "a = A(1)",
                "add `Undefined` to",
            ),
            (
                "expected 4 positional arguments, found 2",
                "a = A(1, 2)",
                "add `Undefined, Undefined` to",
            ),
            (
                "expected Deployment, got StatefulSet",
                "_workload = appsv1.StatefulSet {",
                "`_workload: Deployment | StatefulSet = …`",
            ),
            ("expected int, got str(x)", "_a = \"x\"", "`_a: int | str = …`"),
            (
                "Cannot add member '__settings__' to schema 'RESOURCE'",
                "__settings__: {",
                "declare it in `RESOURCE` (`[...str]: any`",
            ),
            // A slip: the core names what is meant, and nobody needs to know what KCL 0.4 took.
            (
                "Cannot add member 'prt' to schema 'Server', did you mean '[\"port\"]'?",
                "prt = 8001",
                "correct the name, or declare `prt` in the schema `Server`",
            ),
            (
                "No attribute named 'y' in the schema 'A'",
                "a = A {**_d}",
                "remove `y`",
            ),
            (
                "attribute 'ports' of Ingress is required and can't be None or Undefined",
                "ingress?: [Ingress]",
                "`ports?:` in the schema `Ingress`",
            ),
            (
                "`import kcl_plugin.project_context`: Konverge supports no plugins, because …",
                "import kcl_plugin.project_context as ctx",
                "`option(\"NAME\")`",
            ),
            (
                "Can not change the value of 'a', because it was declared immutable",
                "a = 2",
                "call it `_a`",
            ),
        ] {
            let hint = hint(message, source);
            assert!(hint.contains(write), "{message}: {hint}");
        }
    }

    #[test]
    fn a_value_of_another_file_is_merged() {
        let mut twice = diagnostic(
            "Can not change the value of 'mysql', because it was declared immutable",
            "mysql = frontend.Server {",
        );
        twice.related.push((
            at("base/base.k"),
            "The variable 'mysql' is declared here".to_owned(),
        ));
        let hint = hints(&[twice]).remove(0).unwrap();
        assert!(
            hint.contains("`mysql: SCHEMA {…}`") && hint.ends_with("base/base.k"),
            "{hint}"
        );
    }

    #[test]
    fn other_errors_have_none() {
        for (message, source) in [
            ("name 'replicas' is not defined", "a = replicas"),
            // It is not said what was negated.
            (
                "name 'notes' is not defined, did you mean '[\"nodes\"]'?",
                "a = notes",
            ),
            ("expected 1 positional arguments, found 2", "a = A(1, 2)"),
            ("expected Workload, got Service", "workload: service.Service {"),
            ("conflicting values on the attribute 'x'", "x: 2"),
        ] {
            assert_eq!(hint(message, source), "", "{message}");
        }
        let mut declared = diagnostic("expected str, got int(1)", "x = 1");
        declared
            .related
            .push((at("a.k"), "variable is defined here, its type is str".to_owned()));
        assert_eq!(hints(&[declared]), [None]);
        let mut inside = diagnostic("expected int, got str(x)", "a = A {x = \"x\"}");
        inside.at_line_start = false;
        assert_eq!(hints(&[inside]), [None]);
    }

    /// What uses the name of an import that stands for two packages fails with errors that mislead.
    #[test]
    fn what_follows_from_an_import_has_no_hint() {
        let clash = diagnostic(
            "the name 'c' is defined multiple times, 'c' must be defined only once",
            "import common as c",
        );
        let follows = diagnostic(
            "Cannot add member 'containers' to schema 'Service'",
            "containers: {",
        );
        let apart = diagnostic("name 'true' is not defined", "a = true");
        let hints = hints(&[clash, follows, apart]);
        assert_eq!((&hints[0], &hints[1]), (&None, &None));
        assert!(hints[2].is_some());
    }
}
