//! A monorepo of the known scale, committed to git: shared packages imported deeply and unevenly, projects with a
//! common base and three stacks each.

use std::{
    fmt::Write as _,
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

/// Packages under `base/pkg`, files in them, and lines a file on average.
const PACKAGES: usize = 150;
const FILES_A_PACKAGE: usize = 8;
const LINES_A_FILE: usize = 75;
/// Roots that stacks render with, and how many stacks of a hundred take each.
const RENDERS: [usize; 6] = [70, 12, 8, 5, 3, 2];

/// What the head changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// One stack's `main.k`.
    Application,
    /// One file of a package that nearly every stack reaches.
    Shared,
    /// Documentation.
    Nothing,
}

impl Change {
    pub const ALL: [Self; 3] = [Self::Application, Self::Shared, Self::Nothing];

    pub fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Shared => "shared",
            Self::Nothing => "documentation",
        }
    }
}

/// A repository on disk, removed when dropped, with a branch for the base and one for each change.
pub struct Monorepo {
    pub path: PathBuf,
    pub projects: usize,
    pub files: usize,
    pub lines: usize,
    _folder: tempfile::TempDir,
}

impl Monorepo {
    pub fn make(projects: usize) -> Self {
        Self::with_reads(projects, 0)
    }

    /// Each stack reads outputs of so many others. Nobody reads the application that changes.
    pub fn with_reads(projects: usize, reads: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("repo");
        let mut dice = Dice(42);
        let mut import = Import::default();
        import.commit("base", None);
        import.file("kcl.mod", "[package]\nname = \"mono\"\nversion = \"0.1.0\"\n");
        packages(&mut import, &mut dice);
        for number in 0..projects {
            project(&mut import, &mut dice, number, reads);
        }
        let (files, lines) = (import.files, import.lines);
        for change in Change::ALL {
            import.commit(change.name(), Some("base"));
            match change {
                Change::Application => import.file(
                    "apps/team0/app0/dev/main.k",
                    "import base.pkg.p000\n\nchanged = 1\n",
                ),
                Change::Shared => import.file("base/pkg/p000/f1.k", "shared_change = 1\n"),
                Change::Nothing => import.file("README.md", "# Changed\n"),
            }
        }
        std::fs::create_dir_all(&path).unwrap();
        git(&path, &["init", "--quiet", "--initial-branch=base"], b"");
        git(&path, &["fast-import", "--quiet"], import.stream.as_bytes());
        git(&path, &["repack", "-adq"], b"");
        println!("{projects} projects: {files} files, {lines} lines of KCL");
        Self {
            path,
            projects,
            files,
            lines,
            _folder: folder,
        }
    }
}

fn packages(import: &mut Import, dice: &mut Dice) {
    for number in 0..PACKAGES {
        for file in 0..FILES_A_PACKAGE {
            let mut text = String::new();
            // Three of five packages are leaves; the others import lower numbers, the lowest most often.
            if number % 5 > 2 && file < 2 {
                let low = dice.roll(number.clamp(1, 12));
                let any = dice.roll(number.max(1));
                let _ = writeln!(
                    text,
                    "import base.pkg.p{low:03}\nimport base.pkg.p{any:03} as other"
                );
            }
            body(&mut text, dice, LINES_A_FILE, &format!("P{number}F{file}"));
            import.file(&format!("base/pkg/p{number:03}/f{file}.k"), &text);
        }
        import.file(
            &format!("base/pkg/p{number:03}/model_test.k"),
            "import file\n\ntest = 1\n",
        );
    }
    for (number, _) in RENDERS.iter().enumerate() {
        let mut text = String::new();
        for step in 0..12 {
            let _ = writeln!(
                text,
                "import base.pkg.p{:03} as i{step}",
                PACKAGES - 1 - ((step * 7 + number * 3) % 90)
            );
        }
        text.push_str("import base.pkg.p000 as core\n");
        body(&mut text, dice, 120, &format!("Render{number}"));
        import.file(&format!("base/render/r{number}.k"), &text);
    }
}

fn project(import: &mut Import, dice: &mut Dice, number: usize, reads: usize) {
    let home = format!("apps/team{}/app{number}", number / 25);
    import.file(&format!("{home}/project.yaml"), &format!("name: app{number}\n"));
    let mut text = format!("import base.pkg.p{:03} as models\n", dice.roll(PACKAGES));
    let lines = 40 + dice.roll(140);
    body(&mut text, dice, lines, &format!("App{number}"));
    import.file(&format!("{home}/base/base.k"), &text);
    for stack in ["dev", "test", "prod"] {
        let folder = format!("{home}/{stack}");
        let mut text = format!("import base.pkg.p{:03} as models\n", dice.roll(PACKAGES));
        if dice.roll(50) == 0 {
            text.push_str("import file\n");
        }
        let lines = 20 + dice.roll(110);
        body(&mut text, dice, lines, &format!("App{number}{stack}"));
        import.file(&format!("{folder}/main.k"), &text);
        let mut manifest = format!("name: {stack}\n");
        // Applications of a lower number, so that there is no circle.
        let readable = number.saturating_sub(1);
        for read in 0..reads.min(readable) {
            let head = if read == 0 { "reads:\n" } else { "" };
            let other = 1 + (number * 7 + read) % readable;
            let _ = writeln!(manifest, "{head}  a{read}: app{other}/{stack}");
        }
        import.file(&format!("{folder}/stack.yaml"), &manifest);
        let mut roll = dice.roll(100);
        let render = RENDERS.iter().position(|weight| {
            let hit = roll < *weight;
            roll = roll.saturating_sub(*weight);
            hit
        });
        import.file(
            &format!("{folder}/kcl.yaml"),
            &format!(
                "kcl_cli_configs:\n  files:\n    - ../base/base.k\n    - main.k\n    - ${{KCL_MOD}}/base/render/r{}.k\n",
                render.unwrap_or(0)
            ),
        );
        import.file(
            &format!("{folder}/ci-test/settings.yaml"),
            &format!("kcl_options:\n  - key: app\n    value: app{number}\n  - key: env\n    value: {stack}\n  - key: cluster\n    value: {stack}-1\n"),
        );
    }
}

/// Lines as KCL models have them: schemas with documentation, attributes, literals.
fn body(text: &mut String, dice: &mut Dice, lines: usize, name: &str) {
    let _ = writeln!(
        text,
        "\nschema {name}:\n    \"\"\"{name} describes a part of the platform.\n\n    import is only a word here.\n    \"\"\""
    );
    for line in 0..lines {
        let _ = match dice.roll(4) {
            0 => writeln!(text, "    # attribute {line} of {name}"),
            1 => writeln!(text, "    field{line}?: str = \"value-{}\"", dice.roll(1000)),
            2 => writeln!(
                text,
                "    list{line}?: [int] = [{}, {}]",
                dice.roll(100),
                dice.roll(100)
            ),
            _ => writeln!(text, "    number{line}?: int = {}", dice.roll(10_000)),
        };
    }
}

/// A stream for `git fast-import`.
#[derive(Default)]
struct Import {
    stream: String,
    files: usize,
    lines: usize,
}

impl Import {
    fn commit(&mut self, branch: &str, from: Option<&str>) {
        let _ = write!(
            self.stream,
            "commit refs/heads/{branch}\ncommitter Ada <ada@example.com> 1767225600 +0000\ndata 4\nmade\n"
        );
        if let Some(from) = from {
            let _ = writeln!(self.stream, "from refs/heads/{from}");
        }
    }

    fn file(&mut self, path: &str, text: &str) {
        self.files += 1;
        if path.ends_with(".k") {
            self.lines += text.lines().count();
        }
        let _ = write!(
            self.stream,
            "M 100644 inline {path}\ndata {}\n{text}\n",
            text.len()
        );
    }
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides.max(1) as u64) as usize
    }
}

fn git(path: &std::path::Path, args: &[&str], input: &[u8]) {
    let mut child = Command::new("git")
        .arg("-C")
        .arg(path)
        .args(args)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    assert!(child.wait().unwrap().success(), "git {args:?}");
}
