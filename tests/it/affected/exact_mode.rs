//! `affected --exact`: compiles stacks at base and head and compares the Specs. The expected results come from the KCL
//! core.

use std::collections::BTreeMap;

use konverge_repo::{
    affected::{Analysis, ScanCache},
    konfig::{Layout, SettingsOrder},
};
use serde_json::Value;

use crate::{
    affected::core_oracle::Oracle,
    affected::random_repository::{Dice, Files},
    support::{git::Repository, process::Konverge},
};

/// A value as KCL writes it; every key is a name.
fn literal(dice: &mut Dice, depth: usize) -> Vec<String> {
    let scalars = [
        "1", "\"1\"", "1.0", "True", "\"true\"", "\"\"", "None", "[]", "{}", "\"a b\"",
    ];
    let mut lines = Vec::new();
    for key in 0..2 + dice.roll(4) {
        let value = match dice.roll(if depth == 0 { 2 } else { 4 }) {
            0 | 1 => (*dice.pick(&scalars)).to_owned(),
            2 => format!("[{}, {}]", dice.pick(&scalars), dice.pick(&scalars)),
            _ => format!("{{{}}}", literal(dice, depth - 1).join(", ")),
        };
        lines.push(format!("k{key} = {value}"));
    }
    lines
}

fn program(lines: &[String], head: &str) -> String {
    format!(
        "{head}import base.shared\n\nresources = [{{\n    id = \"v1:ConfigMap:web\"\n    type = \"Kubernetes\"\n    attributes = {{\n        apiVersion = \"v1\"\n        kind = \"ConfigMap\"\n        metadata = {{name = \"web\"}}\n        shared = shared.value\n        {}\n    }}\n}}]\n",
        lines.join("\n        ")
    )
}

/// A random edit of a program. It may or may not change the Spec.
fn edited(dice: &mut Dice, lines: &[String]) -> String {
    let mut lines = lines.to_vec();
    let at = dice.roll(lines.len());
    match dice.roll(8) {
        0 => return program(&lines, "# a remark\n\n"),
        1 => lines.reverse(),
        2 => lines.push("extra = None".to_owned()),
        3 => lines.push("extra = Undefined".to_owned()),
        4 => lines[at] = lines[at].replace('1', "2"),
        5 => lines[at] = lines[at].replace('"', "'"),
        6 => {
            if let Some((key, list)) = lines[at].clone().split_once(" = [")
                && let Some((one, two)) = list.trim_end_matches(']').split_once(", ")
            {
                lines[at] = format!("{key} = [{two}, {one}]");
            }
        }
        _ => lines[at].push_str("  # the same"),
    }
    program(&lines, "")
}

fn specs(
    files: &Files,
    oracle: &mut Oracle,
    root: &std::path::Path,
) -> BTreeMap<String, Result<Value, String>> {
    files.lay(root);
    let source = files.source();
    let layout = Layout::read(&source, SettingsOrder::V090).unwrap();
    let analysis = Analysis::new(source, layout, "0.13.2", &ScanCache::new()).unwrap();
    let stacks = analysis.layout().stacks.iter();
    stacks
        .map(|stack| {
            let spec = oracle.compile(root, stack.compile.as_ref().unwrap());
            (stack.id.to_string(), spec.map_err(|_| "refused".to_owned()))
        })
        .collect()
}

#[test]
fn same_is_only_said_of_stacks_whose_specs_are() {
    let mut dice = Dice(7);
    let mut files = Files::default();
    files.put("kcl.mod", "");
    files.put("base/shared/shared.k", "value = 1\nunused = 1\n");
    let mut programs = Vec::new();
    for number in 0..24 {
        let home = format!("apps/a{number:02}");
        let lines = literal(&mut dice, 2);
        files.put(&format!("{home}/project.yaml"), format!("name: a{number:02}\n"));
        files.put(&format!("{home}/dev/stack.yaml"), "name: dev\n");
        files.put(
            &format!("{home}/dev/kcl.yaml"),
            "kcl_cli_configs:\n  files: [main.k]\n",
        );
        files.put(&format!("{home}/dev/main.k"), program(&lines, ""));
        programs.push(lines);
    }
    let (real, mut oracle) = (Repository::init(), Oracle::start());
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("repo");
    let before = specs(&files, &mut oracle, &root);
    commit(&files, &real);
    // One file that every stack imports changes too, in what none of them uses: every stack is affected.
    files.put("base/shared/shared.k", "value = 1\nunused = 2\n");
    for (number, lines) in programs.iter().enumerate() {
        let text = edited(&mut dice, lines);
        files.put(&format!("apps/a{number:02}/dev/main.k"), text);
    }
    files.put("apps/a23/dev/main.k", "resources = [\n");
    let after = specs(&files, &mut oracle, &root);
    commit(&files, &real);
    let answer = Konverge::new(["affected", "--exact", "--base", "HEAD~1", "--output", "json"])
        .dir(real.path())
        .with_kcl()
        .run()
        .expect(0)
        .json();
    let mut counted = BTreeMap::new();
    for stack in answer["stacks"].as_array().unwrap() {
        let id = stack["id"].as_str().unwrap();
        let said = stack["spec"].as_str().unwrap();
        *counted.entry(said.to_owned()).or_insert(0) += 1;
        let (was, is) = (&before[id], &after[id]);
        match said {
            "same" => assert_eq!(was, is, "{id} is called the same"),
            "changed" => assert_ne!(was, is, "{id}: a difference where there is none"),
            "error" => assert!(was.is_err() || is.is_err(), "{id}: {is:?}"),
            other => panic!("{id}: {other}"),
        }
    }
    assert_eq!(answer["stacks"].as_array().unwrap().len(), 24);
    assert!(
        counted["same"] >= 4 && counted["changed"] >= 4 && counted["error"] >= 1,
        "{counted:?}"
    );
}

fn commit(files: &Files, real: &Repository) {
    for (path, content) in &files.0 {
        let crate::affected::random_repository::Content::Text(text) = content else {
            unreachable!("this repository has no links");
        };
        real.write(path, text);
    }
    real.commit("state");
}
