//! What is rarer in a monorepo, and edits of it: mapped and vendored packages, globs, folders and links as entries,
//! data in folders of their own, stacks and projects that come and go.

use konverge_repo::konfig::SettingsOrder;

use crate::affected::random_repository::{Content, Dice, Files};

/// The reading order of one of Kusion's versions, most often the default.
pub fn order(dice: &mut Dice) -> SettingsOrder {
    match dice.roll(5) {
        0 => SettingsOrder::V07,
        1 => SettingsOrder::V091,
        _ => SettingsOrder::V090,
    }
}

/// Adds some of it to a monorepo.
pub fn add(dice: &mut Dice, files: &mut Files) {
    for (number, folder) in ["mapped", "mapped2"].into_iter().enumerate() {
        files.put(&format!("{folder}/kcl.mod"), "");
        files.put(&format!("{folder}/m.k"), format!("m = {number}\n"));
    }
    for version in ["1.0", "2.0"] {
        let folder = format!("vendor/vend_{version}");
        files.put(&format!("{folder}/kcl.mod"), "[package]\nname = \"vend\"\n");
        files.put(&format!("{folder}/v.k"), format!("v = \"{version}\"\n"));
    }
    append(files, "kcl.mod", "vend = \"1.0\"\n");
    files.put("kcl.mod.lock", "[dependencies]\n");
    files.put("base/entries/a.k", "entries_a = 1\n");
    files.put("base/entries/_b.k", "entries_b = 1\n");
    for settings in having(files, "kcl.yaml") {
        add_to_stack(dice, files, settings.trim_end_matches("/kcl.yaml"));
    }
}

fn add_to_stack(dice: &mut Dice, files: &mut Files, folder: &str) {
    let (main, settings) = (format!("{folder}/main.k"), format!("{folder}/kcl.yaml"));
    if dice.chance(30) {
        append(
            files,
            &main,
            "import vend.v as vendored\nby_vendor = vendored.v\n",
        );
    }
    if dice.chance(25) {
        files.put(&format!("{folder}/parts/one.k"), "part_one = 1\n");
        files.put(&format!("{folder}/parts/two.k"), "part_two = 2\n");
        append(files, &settings, "    - parts/*.k\n");
    }
    if dice.chance(20) {
        append(files, &settings, "    - ${KCL_MOD}/base/entries\n");
    }
    if dice.chance(30) {
        append(files, &settings, "  package_maps:\n    maps: ${KCL_MOD}/mapped\n");
        append(files, &main, "import maps.m as mapped\nby_map = mapped.m\n");
    }
    if dice.chance(35) {
        files.put(&format!("{folder}/notes/n.txt"), dice.roll(100).to_string());
        let target = ["n.txt", "../main.k"][dice.roll(2)].to_owned();
        files
            .0
            .insert(format!("{folder}/notes/l.txt"), Content::Link(target));
        let call = [
            "file.read(\"notes/n.txt\")",
            "file.read(\"notes/l.txt\")",
            "file.read(\"notes/\" + \"n.txt\")",
            "len(file.glob(\"notes/*.txt\"))",
            "file.exists(\"notes/later.txt\")",
        ][dice.roll(5)];
        append(files, &main, &format!("import file\nread = {call}\n"));
    }
    let relative = files.text(&main).is_none_or(|text| text.contains("import .."));
    if !relative && dice.chance(20) {
        let real = format!("shared/{}.k", folder.replace('/', "_"));
        let content = files.0.remove(&main).unwrap();
        files.0.insert(real.clone(), content);
        files.0.insert(main, Content::Link(format!("../../../{real}")));
    }
}

/// One random edit; its name, for the report.
pub fn edit(dice: &mut Dice, files: &mut Files) -> String {
    let number = dice.roll(1000);
    match dice.roll(22) {
        0 => {
            files.put("mapped/m.k", format!("m = {number}\n"));
            "edit the mapped package".to_owned()
        }
        1 => replace_in(dice, files, "kcl.yaml", "KCL_MOD}/mapped\n", "KCL_MOD}/mapped2\n"),
        2 => replace_in(
            dice,
            files,
            "kcl.yaml",
            "    maps: ${KCL_MOD}/mapped\n",
            "    other: ${KCL_MOD}/mapped\n",
        ),
        3 => {
            files.put("vendor/vend_1.0/v.k", format!("v = {number}\n"));
            "edit the vendored package".to_owned()
        }
        4 => replace_in(
            dice,
            files,
            "kcl.mod",
            "vend = \"1.0\"",
            ["vend = \"2.0\"", "vend = \"3.0\""][number % 2],
        ),
        5 => remove_one(dice, files, "vend_1.0/kcl.mod"),
        6 => in_folder_of(
            dice,
            files,
            "parts/one.k",
            "parts/new.k",
            &format!("part_new = {number}\n"),
        ),
        7 => remove_one(dice, files, "parts/two.k"),
        8 => {
            let name = ["_new.k", "new.k", "new_test.k", "_b.k"][dice.roll(4)];
            files.put(
                &format!("base/entries/{name}"),
                format!("entries_new = {number}\n"),
            );
            format!("put base/entries/{name}")
        }
        9 => in_folder_of(dice, files, "notes/n.txt", "notes/n.txt", &"x".repeat(number)),
        10 => in_folder_of(
            dice,
            files,
            "notes/n.txt",
            ["notes/later.txt", "notes/deep/n.txt"][number % 2],
            "new",
        ),
        11 => repoint(
            dice,
            files,
            "notes/l.txt",
            ["n.txt", "later.txt", "../stack.yaml"][number % 3],
        ),
        12 => {
            let shared = having(files, ".k")
                .into_iter()
                .filter(|path| path.starts_with("shared/"));
            let shared: Vec<_> = shared.collect();
            let Some(path) = one(dice, &shared) else {
                return "nothing".to_owned();
            };
            append(files, &path, &format!("shared_{number} = 1\n"));
            format!("edit {path}, which a link leads to")
        }
        13 => repoint(dice, files, "/main.k", "../../../base/view.k"),
        14 => {
            files.put("kcl.mod.lock", format!("[dependencies]\n# {number}\n"));
            "edit kcl.mod.lock".to_owned()
        }
        15 => {
            let Some(project) = one(dice, &having(files, "project.yaml")) else {
                return "nothing".to_owned();
            };
            if having(files, "project.yaml").len() == 1 {
                return "nothing".to_owned();
            }
            let home = project.replace("project.yaml", "");
            files.0.retain(|path, _| !path.starts_with(&home));
            format!("delete {home}")
        }
        16 => {
            let Some(project) = one(dice, &having(files, "project.yaml")) else {
                return "nothing".to_owned();
            };
            let home = project.replace("/project.yaml", "");
            let copied: Vec<_> = files
                .0
                .iter()
                .filter(|(path, _)| path.starts_with(&format!("{home}/")))
                .map(|(path, content)| (path.replacen(&home, "apps/copy", 1), content.clone()))
                .collect();
            files.0.extend(copied);
            if !number.is_multiple_of(3) {
                files.put("apps/copy/project.yaml", "name: copy\n");
            }
            format!("copy {home} to apps/copy")
        }
        17 => remove_one(dice, files, "stack.yaml"),
        18 => {
            let Some(path) = one(dice, &having(files, ".k")) else {
                return "nothing".to_owned();
            };
            let name = path.rsplit('/').next().unwrap_or_default();
            let folder = path.trim_end_matches(name);
            let twin = format!("{folder}{}", name.to_uppercase().replace(".K", ".k"));
            files.put(&twin, "TWIN = 1\n");
            format!("add a file that differs from {path} by case")
        }
        19 => {
            let Some(path) = one(dice, &having(files, "/side.k")) else {
                return "nothing".to_owned();
            };
            let folder = path.trim_end_matches("/side.k").to_owned();
            let own = folder.replace('/', ".");
            append(files, &path, &format!("import {own} as itself\n"));
            format!("have {folder} import itself")
        }
        20 => {
            let Some(path) = one(dice, &having(files, "/side.k")) else {
                return "nothing".to_owned();
            };
            let folder = path.trim_end_matches("/side.k").to_owned();
            files.0.retain(|path, _| !path.starts_with(&format!("{folder}/")));
            files.put(&format!("{folder}.k"), format!("total = {number}\n"));
            format!("put a file in place of {folder}")
        }
        _ => remove_one(dice, files, "settings.yaml"),
    }
}

fn having(files: &Files, suffix: &str) -> Vec<String> {
    files
        .0
        .keys()
        .filter(|path| path.ends_with(suffix))
        .cloned()
        .collect()
}

fn one(dice: &mut Dice, paths: &[String]) -> Option<String> {
    (!paths.is_empty()).then(|| dice.pick(paths).clone())
}

fn append(files: &mut Files, path: &str, text: &str) {
    if let Some(old) = files.text(path) {
        let new = format!("{old}{text}");
        files.put(path, new);
    }
}

fn replace_in(dice: &mut Dice, files: &mut Files, suffix: &str, from: &str, to: &str) -> String {
    let holding = having(files, suffix)
        .into_iter()
        .filter(|path| files.text(path).is_some_and(|text| text.contains(from)));
    let holding: Vec<_> = holding.collect();
    let Some(path) = one(dice, &holding) else {
        return "nothing".to_owned();
    };
    let text = files.text(&path).unwrap_or_default().replace(from, to);
    files.put(&path, text);
    format!("{to:?} in {path}")
}

fn remove_one(dice: &mut Dice, files: &mut Files, suffix: &str) -> String {
    let Some(path) = one(dice, &having(files, suffix)) else {
        return "nothing".to_owned();
    };
    files.0.remove(&path);
    format!("delete {path}")
}

/// Writes a file where another one lies.
fn in_folder_of(dice: &mut Dice, files: &mut Files, beside: &str, path: &str, text: &str) -> String {
    let Some(known) = one(dice, &having(files, &format!("/{beside}"))) else {
        return "nothing".to_owned();
    };
    let path = known.replace(beside, path);
    files.put(&path, text);
    format!("write {path}")
}

fn repoint(dice: &mut Dice, files: &mut Files, suffix: &str, target: &str) -> String {
    let links = having(files, suffix)
        .into_iter()
        .filter(|path| files.text(path).is_none());
    let links: Vec<_> = links.collect();
    let Some(path) = one(dice, &links) else {
        return "nothing".to_owned();
    };
    files.0.insert(path.clone(), Content::Link(target.to_owned()));
    format!("point {path} to {target}")
}
