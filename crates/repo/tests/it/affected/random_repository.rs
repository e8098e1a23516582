//! A random monorepo that compiles, and random edits of every class of input.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use konverge_base::model::{
    CommitId, RepoPath,
    file_source::{BlobId, FileEntry, FileKind, FileTree, Listing, Source, SourceError, TreeId},
};

/// Small, seeded, and the same everywhere (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % sides.max(1) as u64) as usize
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.roll(100) < percent
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.roll(items.len())]
    }
}

/// A file's content, or a link's target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    Text(String),
    Link(String),
}

/// Files in memory, and on disk on request.
#[derive(Clone, Default, Debug)]
pub struct Files(pub BTreeMap<String, Content>);

impl Files {
    pub fn put(&mut self, path: &str, text: impl Into<String>) {
        self.0.insert(path.to_owned(), Content::Text(text.into()));
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        match self.0.get(path)? {
            Content::Text(text) => Some(text),
            Content::Link(_) => None,
        }
    }

    /// Makes `root` hold exactly these files.
    pub fn lay(&self, root: &Path) {
        if root.exists() {
            std::fs::remove_dir_all(root).unwrap();
        }
        std::fs::create_dir_all(root).unwrap();
        for (path, content) in &self.0 {
            let place = root.join(path);
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            match content {
                Content::Text(text) => std::fs::write(place, text).unwrap(),
                Content::Link(target) => std::os::unix::fs::symlink(target, place).unwrap(),
            }
        }
    }

    pub fn source(&self) -> Arc<dyn Source> {
        let mut files = FileTree::new();
        let mut contents = BTreeMap::new();
        for (path, content) in &self.0 {
            let (kind, text) = match content {
                Content::Text(text) => (FileKind::File, text),
                Content::Link(target) => (FileKind::Symlink, target),
            };
            let oid = git2::Oid::hash_object(git2::ObjectType::Blob, text.as_bytes()).unwrap();
            let blob = BlobId(oid.as_bytes().try_into().unwrap());
            contents.insert(blob, Arc::from(text.as_bytes()));
            files.insert(RepoPath::normalize(path).unwrap(), FileEntry { blob, kind });
        }
        Arc::new(Memory {
            files: Arc::new(files),
            contents,
            commit: "c".repeat(40).parse().unwrap(),
        })
    }
}

struct Memory {
    files: Arc<FileTree>,
    contents: BTreeMap<BlobId, Arc<[u8]>>,
    commit: CommitId,
}

impl Source for Memory {
    fn files(&self) -> &FileTree {
        &self.files
    }

    fn read(&self, blob: BlobId) -> Result<Arc<[u8]>, SourceError> {
        Ok(Arc::clone(&self.contents[&blob]))
    }

    fn commit(&self) -> Option<&CommitId> {
        Some(&self.commit)
    }

    fn listing(&self) -> Option<Listing> {
        let names = format!("{:?}", self.files);
        let oid = git2::Oid::hash_object(git2::ObjectType::Blob, names.as_bytes()).unwrap();
        Some(Listing {
            tree: TreeId(oid.as_bytes().try_into().unwrap()),
            files: Arc::clone(&self.files),
        })
    }
}

/// A monorepo: packages that build on each other, projects with stacks, an external package, data files, a link.
pub fn monorepo(dice: &mut Dice) -> Files {
    let mut files = Files::default();
    files.put(
        "kcl.mod",
        "[package]\nname = \"mono\"\n\n[dependencies]\nlib = { path = \"lib\" }\n",
    );
    files.put("lib/kcl.mod", "[package]\nname = \"lib\"\n");
    files.put("lib/core.k", format!("lib = {}\n", dice.roll(100)));
    files.put("lib/deep/deep.k", "import core\n\ndeep = core.lib + 1\n");
    let mut packages: Vec<String> = Vec::new();
    for number in 0..3 + dice.roll(5) {
        let folder = match dice.roll(4) {
            0 => format!("p{number}"),
            1 => format!("base/pkg/deep/p{number}"),
            _ => format!("base/pkg/p{number}"),
        };
        let mut text = String::new();
        let mut sum = dice.roll(100).to_string();
        for (at, other) in packages.iter().enumerate() {
            if dice.chance(35) {
                text.push_str(&import(dice, &folder, other, &format!("i{at}")));
                sum.push_str(&format!(" + i{at}.total"));
            }
        }
        if dice.chance(20) {
            text.push_str("import lib.deep as ext\n");
            sum.push_str(" + ext.deep");
        }
        text.push_str(&format!("total = {sum} + side\n"));
        files.put(&format!("{folder}/main.k"), text);
        files.put(
            &format!("{folder}/side.k"),
            format!(
                "\"\"\"\nimport nothing.at.all\n\"\"\"\nside = {}\n",
                dice.roll(100)
            ),
        );
        if dice.chance(20) {
            files.put(&format!("{folder}/main_test.k"), "broken broken\n");
        }
        if dice.chance(20) {
            files.put(&format!("{folder}/_hidden.k"), "side = 1\n");
        }
        if dice.chance(25) {
            files.put(&format!("{folder}/data.txt"), dice.roll(100).to_string());
            let module = *dice.pick(&["file", "file as file", "crypto"]);
            let call = if module == "crypto" {
                "len(crypto.filesha256(\"data.txt\"))"
            } else {
                "len(file.read(\"data.txt\"))"
            };
            files.put(
                &format!("{folder}/reads.k"),
                format!("import {module}\n\nseen = {call}\n"),
            );
        }
        if dice.chance(20) {
            files
                .0
                .insert(format!("link{number}"), Content::Link(folder.clone()));
            packages.push(format!("link{number}"));
        }
        packages.push(folder);
    }
    files.put(
        "base/render.k",
        "import base.view as view\n\nenv = option(\"env\") or \"none\"\nshown = view.view\n",
    );
    files.put("base/view.k", format!("view = {}\n", dice.roll(10)));
    for project in 0..1 + dice.roll(2) {
        let home = format!("apps/a{project}");
        files.put(&format!("{home}/project.yaml"), format!("name: a{project}\n"));
        let used = dice.pick(&packages).clone();
        files.put(
            &format!("{home}/base/base.k"),
            format!(
                "{}common = used.total\n",
                import(dice, &format!("{home}/base"), &used, "used")
            ),
        );
        if dice.chance(30) {
            files.put(&format!("{home}/crd/x.yaml"), "kind: CustomResourceDefinition\n");
        }
        for stack in ["dev", "prod"] {
            let folder = format!("{home}/{stack}");
            let used = dice.pick(&packages).clone();
            files.put(
                &format!("{folder}/main.k"),
                format!(
                    "{}own = mine.total + common\n",
                    import(dice, &folder, &used, "mine")
                ),
            );
            files.put(&format!("{folder}/stack.yaml"), format!("name: {stack}\n"));
            if dice.chance(20) {
                files.put(
                    &format!("{folder}/kcl.mod"),
                    "[package]\nname = \"own\"\n\n[dependencies]\nmono = { path = \"../../..\" }\n\n[profile]\nentries = [\"../base/base.k\", \"own.k\"]\n",
                );
                let used = dotted(&used);
                files.put(
                    &format!("{folder}/own.k"),
                    format!("import mono.{used} as theirs\n\nown = theirs.total\n"),
                );
                continue;
            }
            files.put(
                &format!("{folder}/kcl.yaml"),
                "kcl_cli_configs:\n  files:\n    - ../base/base.k\n    - main.k\n    - ${KCL_MOD}/base/render.k\n",
            );
            files.put(
                &format!("{folder}/ci-test/settings.yaml"),
                format!("kcl_options:\n  - key: env\n    value: {stack}\n"),
            );
        }
    }
    files
}

/// An import of a package from a folder, absolute or relative.
fn import(dice: &mut Dice, from: &str, to: &str, name: &str) -> String {
    let parent = from.rsplit_once('/').map_or("", |(parent, _)| parent);
    let style = ["\n", "\r\n", " # import x\n"][dice.roll(3)];
    match to.strip_prefix(&format!("{parent}/")) {
        Some(rest) if !rest.contains('/') && !parent.is_empty() && dice.chance(60) => {
            format!("import ..{rest} as {name}{style}")
        }
        _ => format!("import {} as {name}{style}", dotted(to)),
    }
}

fn dotted(path: &str) -> String {
    path.replace('/', ".")
}

/// One random edit; its name, for the report.
pub fn edit(dice: &mut Dice, files: &mut Files) -> String {
    let all: Vec<String> = files.0.keys().cloned().collect();
    let of = |suffix: &str| {
        all.iter()
            .filter(|path| path.ends_with(suffix))
            .cloned()
            .collect::<Vec<_>>()
    };
    let kcl = of(".k");
    let any_k = dice.pick(&kcl).clone();
    let folder = any_k.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    let number = dice.roll(1000);
    match dice.roll(26) {
        0 | 1 => {
            let text =
                files
                    .text(&any_k)
                    .unwrap_or_default()
                    .replacen("total =", &format!("total = {number} +"), 1);
            files.put(&any_k, format!("{text}extra{number} = {number}\n"));
            format!("edit {any_k}")
        }
        2 => {
            files.0.remove(&any_k);
            format!("delete {any_k}")
        }
        3 => {
            files.put(&format!("{folder}/new{number}.k"), format!("fresh{number} = 1\n"));
            format!("add a sibling in {folder}")
        }
        4 => {
            files.put(&format!("{folder}/new{number}_test.k"), "broken broken\n");
            format!("add a test in {folder}")
        }
        5 => {
            files.put(&format!("{folder}/kcl.mod"), "");
            format!("add {folder}/kcl.mod")
        }
        6 => {
            let path = dice.pick(&of("kcl.mod")).clone();
            files.0.remove(&path);
            format!("delete {path}")
        }
        7 => {
            let settings = of("settings.yaml");
            if settings.is_empty() {
                return "nothing".to_owned();
            }
            let path = dice.pick(&settings).clone();
            files.put(
                &path,
                format!("kcl_options:\n  - key: env\n    value: e{number}\n"),
            );
            format!("edit {path}")
        }
        8 => {
            let settings = of("kcl.yaml");
            if settings.is_empty() {
                return "nothing".to_owned();
            }
            let path = dice.pick(&settings).clone();
            let text = files.text(&path).unwrap_or_default().to_owned();
            files.put(
                &path,
                match dice.roll(4) {
                    0 => text.replace("    - main.k\n", ""),
                    1 => format!("{text}  disable_none: true\n"),
                    2 => format!("{text}  overrides:\n    - __main__:shown={number}\n"),
                    _ => text.replace("    - main.k\n", "    - main.k\n    - ${KCL_MOD}/base/view.k\n"),
                },
            );
            format!("edit {path}")
        }
        9 => {
            let path = dice.pick(&of("project.yaml")).clone();
            files.put(&path, format!("name: other{number}\n"));
            format!("rename the project of {path}")
        }
        10 => {
            let path = dice.pick(&of("stack.yaml")).clone();
            files.put(&path, ["name: dev\n", "name: [\n", "name: third\n"][dice.roll(3)]);
            format!("edit {path}")
        }
        11 => {
            let home = dice.pick(&of("project.yaml")).replace("/project.yaml", "");
            files.put(
                &format!("{home}/crd/n{number}.yaml"),
                "kind: CustomResourceDefinition\n",
            );
            format!("add a CRD to {home}")
        }
        12 => {
            let data = of("data.txt");
            if data.is_empty() {
                return "nothing".to_owned();
            }
            let path = dice.pick(&data).clone();
            if dice.chance(30) {
                files.0.remove(&path);
            } else {
                files.put(&path, "long".repeat(number));
            }
            format!("edit {path}")
        }
        13 => {
            let links: Vec<_> = all
                .iter()
                .filter(|path| path.starts_with("link"))
                .cloned()
                .collect();
            if links.is_empty() {
                return "nothing".to_owned();
            }
            let path = dice.pick(&links).clone();
            files.0.insert(path.clone(), Content::Link(folder.clone()));
            format!("point {path} to {folder}")
        }
        14 => {
            let view = "base/view/view.k".to_owned();
            files.put(&view, format!("view = {number}\n"));
            "add a folder beside base/view.k".to_owned()
        }
        15 => {
            files.put("base/view/README.md", "not KCL");
            "add a folder without KCL beside base/view.k".to_owned()
        }
        16 => {
            let home = dice.pick(&of("stack.yaml")).replace("/stack.yaml", "");
            let other = format!("{home}-moved");
            rename(files, &format!("{home}/"), &format!("{other}/"));
            format!("move {home}")
        }
        17 => {
            let target = format!("{folder}-moved");
            rename(files, &format!("{folder}/"), &format!("{target}/"));
            format!("move {folder}")
        }
        18 => {
            files.put("lib/core.k", format!("lib = {number}\n"));
            "edit the external package".to_owned()
        }
        19 => {
            files.put("lib2/core.k", format!("lib = {number}\n"));
            files.put("lib2/deep/deep.k", "deep = 5\n");
            files.put("lib2/kcl.mod", "");
            let text = files
                .text("kcl.mod")
                .unwrap_or_default()
                .replace("\"lib\"", "\"lib2\"");
            files.put("kcl.mod", text);
            "point the dependency elsewhere".to_owned()
        }
        20 => {
            let text = files.text(&any_k).unwrap_or_default().to_owned();
            files.put(
                &any_k,
                ["\u{feff}", "\n\n# c\n"][dice.roll(2)].to_owned() + &text.replace('\n', "\r\n"),
            );
            format!("other line ends in {any_k}")
        }
        21 => {
            let text = files.text(&any_k).unwrap_or_default().to_owned();
            let target = dice.pick(&kcl).trim_end_matches(".k").replace('/', ".");
            files.put(&any_k, format!("{text}import {target} as late{number}\n"));
            format!("add an import of {target} to {any_k}")
        }
        22 => {
            files.put(&format!("{folder}/x{number}.k/y.k"), "y = 1\n");
            format!("add a folder named x.k in {folder}")
        }
        23 => {
            let text = files.text(&any_k).unwrap_or_default().to_owned();
            files.put(&any_k, text.replace("import ", "import \\\n    ") + "open = [\n");
            format!("break {any_k}")
        }
        24 => {
            let shadow = ["base.k", "base/pkg.k", "lib/deep.k", "math/m.k", "apps.k"][dice.roll(5)];
            files.put(shadow, "shadow = 1\n");
            format!("add {shadow}")
        }
        _ => {
            let other = dice.pick(&kcl).clone();
            let (mine, theirs) = (files.0[&any_k].clone(), files.0[&other].clone());
            files.0.insert(any_k.clone(), theirs);
            files.0.insert(other.clone(), mine);
            format!("swap {any_k} and {other}")
        }
    }
}

fn rename(files: &mut Files, from: &str, to: &str) {
    let moved: Vec<_> = files
        .0
        .keys()
        .filter(|path| path.starts_with(from))
        .cloned()
        .collect();
    for path in moved {
        let content = files.0.remove(&path).unwrap();
        files.0.insert(path.replacen(from, to, 1), content);
    }
}
