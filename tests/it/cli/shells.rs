//! Completions and man pages, as users see them: loaded by real shells in which the tab key is pressed, and rendered.

use std::{fs, path::Path};

use crate::support::{executable, kcl, process::Konverge};

/// Starts a shell at a terminal, has it load completions, types the beginning of a command and the tab key, and waits
/// until the rest stands there. Arguments: what loads them, the shell and its arguments.
const AT_A_TERMINAL: &str = r#"
import os, pty, select, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
seen = b""
def until(words):
    global seen
    end = time.monotonic() + 60
    while words not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
        if not ready:
            sys.exit("%r does not come: %r" % (words, seen))
        try:
            seen += os.read(terminal, 4096)
        except OSError:
            sys.exit("it ended: %r" % seen)
os.write(terminal, sys.argv[1].encode() + b"; echo load''ed\n")
until(b"loaded")
seen = b""
os.write(terminal, b"konverge state unl\t")
until(b"konverge state unlock")
os.write(terminal, b"--lea\t")
until(b"--lease")
os.kill(pid, 9)
"#;

fn completes(shell: &Path, arguments: &[&str], load: &str) {
    let programs = Path::new(env!("CARGO_BIN_EXE_konverge")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let shell = shell.to_str().unwrap();
    Konverge::of(
        &kcl::interpreter(),
        [&["-c", AT_A_TERMINAL, load, shell], arguments].concat(),
    )
    .env("TERM", "dumb")
    .env("PATH", path)
    .run()
    .expect(0);
}

#[test]
fn bash_completes() {
    completes(
        Path::new("/bin/bash"),
        &["--norc", "--noprofile", "-i"],
        "source <(konverge completions bash)",
    );
}

#[test]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
fn zsh_completes() {
    completes(
        &executable("shells", "zsh"),
        &["-f", "-i"],
        "autoload -U compinit; compinit -u; source <(konverge completions zsh)",
    );
}

/// Fish says by itself what it would complete, with what each means.
#[test]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
fn fish_completes() {
    let programs = Path::new(env!("CARGO_BIN_EXE_konverge")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let line = "konverge completions fish | source; complete -C 'konverge state unl'; complete -C 'konverge preview --live '";
    let said = Konverge::of(&executable("shells", "fish"), ["--no-config", "-c", line])
        .env("PATH", path)
        .run()
        .expect(0);
    assert_eq!(said.stderr, "");
    for line in [
        "unlock\tEnd the lease of a run that is dead",
        "never\tSpec is compared with Spec",
    ] {
        assert!(
            said.stdout.lines().any(|said| said == line),
            "{line}: {}",
            said.stdout
        );
    }
}

/// Every page renders without a word of complaint but about lines that are too long to be adjusted.
#[test]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
fn man_pages_render() {
    let folder = tempfile::tempdir().unwrap();
    Konverge::new(["__reference", "man", "--to"])
        .arg(folder.path())
        .run()
        .expect(0);
    let mut pages = 0;
    for page in fs::read_dir(folder.path()).unwrap() {
        let page = page.unwrap().path();
        let rendered = Konverge::of(
            &executable("shells", "groff"),
            [
                "-Kutf8",
                "-man",
                "-Tutf8",
                "-ww",
                "-Wbreak",
                "-P-cbou",
                page.to_str().unwrap(),
            ],
        )
        .run()
        .expect(0);
        assert_eq!(rendered.stderr, "", "{}", page.display());
        assert!(rendered.stdout.contains("\nSYNOPSIS\n"), "{}", rendered.stdout);
        pages += 1;
    }
    assert!(pages > 30, "{pages}");
}
