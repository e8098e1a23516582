//! `templates/konverge.yml`: the pipeline that `konverge init` writes, and the component that the guide includes.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::root;

fn documents(text: &str) -> [Value; 2] {
    let documents = konverge_base::yaml::documents(text).unwrap();
    documents.try_into().unwrap()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The names in `$[[ inputs.NAME ]]`.
fn used(text: &str) -> BTreeSet<&str> {
    let parts = text.split("$[[ inputs.").skip(1);
    parts.map(|part| part.split(" ]]").next().unwrap()).collect()
}

#[test]
fn each_input_is_declared_and_used_and_has_a_default() {
    let text = read("templates/konverge.yml");
    let [head, _] = documents(&text);
    let inputs = head["spec"]["inputs"].as_object().unwrap();
    let declared: BTreeSet<&str> = inputs.keys().map(String::as_str).collect();
    assert_eq!(used(&text), declared);
    // So that the file is a pipeline without anybody who gives it inputs.
    assert!(
        inputs.values().all(|input| input["default"].is_string()),
        "{inputs:?}"
    );
}

/// What somebody types stands in a rule between quotation marks, and in a variable. Neither may be left.
#[test]
fn what_somebody_types_is_a_digest_or_a_text_that_nobody_expands() {
    let [head, jobs] = documents(&read("templates/konverge.yml"));
    for input in ["approve", "stack"] {
        let allowed = head["spec"]["inputs"][input]["regex"].as_str().unwrap();
        let allowed = allowed.strip_prefix("^[").unwrap().strip_suffix("]*$").unwrap();
        for character in ['"', '$', '\'', '\\', '`', '\n', '[', '&'] {
            assert!(!allowed.contains(character), "{input}: {character:?}");
        }
    }
    let variables = jobs["konverge-apply"]["variables"].as_object().unwrap();
    for (name, variable) in variables {
        assert_eq!(variable["expand"], false, "{name}");
    }
    // A push may have inputs, which are not an approval: nobody is known to have given them.
    let push = &jobs["konverge-apply"]["rules"][0];
    assert!(push["if"].as_str().unwrap().contains("\"push\""), "{push}");
    assert_eq!(push["variables"]["KONVERGE_APPROVE"], "");
    let scripts = jobs
        .as_object()
        .unwrap()
        .values()
        .filter_map(|job| job["script"].as_array());
    let scripts: Vec<_> = scripts.flatten().collect();
    assert_eq!(scripts, ["konverge ci"]);
}

#[test]
fn applies_and_drift_checks_run_on_the_default_branch_one_after_another() {
    let [_, jobs] = documents(&read("templates/konverge.yml"));
    for job in ["konverge-apply", "konverge-drift"] {
        assert!(jobs[job]["resource_group"].is_string(), "{job}");
        assert!(jobs[job]["interruptible"] != true, "{job}");
        for rule in jobs[job]["rules"].as_array().unwrap() {
            let rule = rule["if"].as_str().unwrap();
            // A schedule names its branch; another than the default one is refused by Konverge itself.
            let is_on_branch = rule.contains("$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH");
            assert!(
                is_on_branch || rule == "$CI_PIPELINE_SOURCE == \"schedule\"",
                "{rule}"
            );
        }
    }
    // A hook of an apply is a pipeline too: one that applied or checked for drift would wait for that apply.
    for job in ["konverge-apply", "konverge-drift"] {
        let by_hand = jobs[job]["rules"][1]["if"].as_str().unwrap();
        assert!(by_hand.contains("(web|api|trigger)"), "{by_hand}");
        assert!(
            by_hand.ends_with("&& \"$[[ inputs.stack ]]\" == \"\""),
            "{by_hand}"
        );
    }
    let preview = &jobs["konverge-preview"]["rules"];
    assert_eq!(preview[0]["if"], "$CI_PIPELINE_SOURCE == \"merge_request_event\"");
    assert_eq!(jobs[".konverge"]["artifacts"]["when"], "always");
}

#[test]
fn the_guide_gives_the_component_inputs_that_it_has() {
    let [head, _] = documents(&read("templates/konverge.yml"));
    let guide = read("docs/guides/gitlab.md");
    let block = crate::support::pages::blocks(&guide, "yaml").remove(0);
    let [pipeline, jobs] = documents(&block);
    let given = jobs["include"][0]["inputs"].as_object().unwrap();
    for name in given.keys() {
        assert!(head["spec"]["inputs"][name].is_object(), "{name}");
        assert!(pipeline["spec"]["inputs"][name].is_object(), "{name}");
    }
    for name in head["spec"]["inputs"].as_object().unwrap().keys() {
        assert!(guide.contains(&format!("`{name}`")), "{name}");
    }
}
