//! Completions and man pages, as users see them: loaded by real shells in which the tab key is pressed, and rendered.

use std::{fs, path::Path};

use crate::support::{executable, git::Repository, kcl, process::Konverge};

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
for typed, wanted in (
    (b"konverge preview storefront/d", b"storefront/dev"),
    (b"konverge preview appops/orders/p", b"appops/orders/prod"),
    (b"konverge preview --live ne", b"never"),
    (b"konverge state rebind storefront/dev --cluster stag", b"staging-eu"),
    (b"konverge preview --base feat", b"feature-x"),
):
    # A new line; what was typed before is left.
    os.write(terminal, b"\x15")
    seen = b""
    os.write(terminal, typed + b"\t")
    until(wanted)
os.kill(pid, 9)
"#;

/// The example with a cluster, a branch, and a branch whose name a shell would run.
fn monorepo() -> Repository {
    let repository = Repository::konfig_example();
    let config = repository.read("konverge.yaml");
    repository.write(
        "konverge.yaml",
        format!("{config}\nclusters: {{staging-eu: {{context: staging}}}}\n"),
    );
    repository.commit("A cluster");
    repository.git(["branch", "feature-x"]);
    repository.git(["branch", "feature-$(touch${IFS}broken-in)"]);
    repository
}

fn completes(shell: &Path, arguments: &[&str], load: &str) {
    let programs = Path::new(env!("CARGO_BIN_EXE_konverge")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let shell = shell.to_str().unwrap();
    let repository = monorepo();
    Konverge::of(
        &kcl::interpreter(),
        [&["-c", AT_A_TERMINAL, load, shell], arguments].concat(),
    )
    .dir(repository.path())
    .env("TERM", "dumb")
    .env("PATH", path)
    .run()
    .expect(0);
}

/// What a shell is answered, word by word.
#[test]
fn words_of_the_repository_are_offered() {
    let repository = monorepo();
    let offered = |words: &[&str]| -> Vec<String> {
        let said = Konverge::new(["--", "konverge"].iter().chain(words))
            .dir(repository.path())
            .env("KONVERGE_COMPLETE", "bash")
            .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
            .env("_CLAP_IFS", "\n")
            .run()
            .expect(0);
        assert_eq!(said.stderr, "");
        said.stdout.lines().map(str::to_owned).collect()
    };
    assert_eq!(
        offered(&["drift", "storefront/"]),
        ["storefront/dev", "storefront/prod", "storefront/staging"]
    );
    assert_eq!(offered(&["state", "show", "billing/p"]), ["billing/prod"]);
    assert_eq!(offered(&["destroy", "--without", "billing/p"]), ["billing/prod"]);
    assert_eq!(offered(&["state", "rebind", "--cluster", "s"]), ["staging-eu"]);
    assert_eq!(offered(&["check", "--skip", "golde"]), ["golden"]);
    // The other names of commands and options.
    for (typed, word) in [("pla", "plan"), ("diff", "diff"), ("lis", "list"), ("up", "up")] {
        assert_eq!(offered(&[typed]), [word]);
    }
    assert_eq!(offered(&["preview", "--workt"]), ["--worktree"]);
    // A name that a shell would run is not offered.
    assert_eq!(offered(&["affected", "--base", "feature"]), ["feature-x"]);
    // Another repository; and none.
    let root = env!("CARGO_MANIFEST_DIR");
    assert!(offered(&["--repo", "/", "list", "storefront"]).is_empty());
    assert!(!offered(&["--repo", root, "preview", "--base", ""]).is_empty());
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
    let line = "konverge completions fish | source; complete -C 'konverge state unl'; complete -C 'konverge preview --live '; complete -C 'konverge list storefront/d'";
    let repository = monorepo();
    let said = Konverge::of(&executable("shells", "fish"), ["--no-config", "-c", line])
        .dir(repository.path())
        .env("PATH", path)
        .run()
        .expect(0);
    assert_eq!(said.stderr, "");
    for line in [
        "unlock\tEnd the lease of a run that is dead",
        "never\tSpec is compared with Spec",
        "storefront/dev\tappops/storefront/dev",
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
