//! Attempts to break out of a compile. Each is a real program in the real core; what it wants exists and could be read
//! by this process, so that only the walls are in its way.

use std::path::Path;

use konverge_base::error::UserError;
use konverge_kcl::{KclError, Pool, SandboxMode};
use serde_json::Value;

use crate::support::{
    ci_stage::{Stage, storefront},
    compiler::{options, path, pool, program, request},
};

/// The document, or the error's text.
async fn attempt(pool: &Pool, text: &str) -> Result<Value, String> {
    match pool.compile(&program(text)).await {
        Ok(compiled) => Ok(compiled.documents.into_iter().next().unwrap_or_default()),
        Err(error) => Err(error.to_string()),
    }
}

/// Fails unless the program fails.
async fn refused(pool: &Pool, text: &str) {
    let result = attempt(pool, text).await;
    assert!(result.is_err(), "{text} gave {result:?}");
}

#[tokio::test]
async fn proc_can_not_be_read() {
    let pool = pool().await;
    for file in [
        "/proc/self/environ",
        "/proc/self/maps",
        "/proc/1/environ",
        "/proc/version",
    ] {
        refused(&pool, &format!("import file\na = file.read(\"{file}\")\n")).await;
    }
}

#[tokio::test]
async fn a_home_and_its_credentials_can_not_be_read() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    let credentials = home.path().join(".aws/credentials");
    std::fs::write(&credentials, "aws_secret_access_key = x").unwrap();
    let pool = pool().await;
    let target = credentials.display();
    refused(&pool, &format!("import file\na = file.read(\"{target}\")\n")).await;
    refused(&pool, "import file\na = file.read(\"/etc/passwd\")\n").await;
}

#[tokio::test]
async fn nothing_above_the_scratch_folder_can_be_read() {
    let outside = tempfile::NamedTempFile::new_in(std::env::temp_dir()).unwrap();
    let name = outside.path().file_name().unwrap().to_str().unwrap();
    std::fs::write(outside.path(), "secret").unwrap();
    let pool = pool().await;
    for climb in ["..", "../..", "./.."] {
        refused(
            &pool,
            &format!("import file\na = file.read(\"{climb}/{name}\")\n"),
        )
        .await;
    }
    refused(
        &pool,
        &format!("import file\na = file.glob(\"../*\")\nassert a == [], \"{name}\"\n"),
    )
    .await;
}

#[tokio::test]
async fn the_environment_is_empty() {
    let pool = pool().await;
    for name in ["HOME", "PATH", "GITHUB_TOKEN", "USER"] {
        let text = format!("import file\na = file.read_env(\"{name}\") or \"\"\n");
        if let Ok(value) = attempt(&pool, &text).await {
            assert_eq!(value["a"], "", "{name}");
        }
    }
}

#[tokio::test]
async fn nothing_can_be_written() {
    let target = tempfile::tempdir().unwrap();
    let kept = target.path().join("kept");
    std::fs::write(&kept, "as it was").unwrap();
    let folder = target.path().display();
    let pool = pool().await;
    for call in [
        format!("file.write(\"{folder}/new\", \"x\")"),
        "file.write(\"new.k\", \"x\")".to_owned(),
        format!("file.append(\"{folder}/kept\", \"x\")"),
        "file.append(\"main.k\", \"x\")".to_owned(),
        format!("file.cp(\"main.k\", \"{folder}/copy\")"),
        format!("file.mv(\"{folder}/kept\", \"{folder}/moved\")"),
        format!("file.delete(\"{folder}/kept\")"),
        "file.delete(\"main.k\")".to_owned(),
        format!("file.mkdir(\"{folder}/made\")"),
        "file.mkdir(\"made\")".to_owned(),
    ] {
        let _ = attempt(&pool, &format!("import file\na = {call}\n")).await;
    }
    let left: Vec<_> = std::fs::read_dir(target.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["kept"]);
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "as it was");
    // The laid files are as they were, too.
    let text = "import file\na = [file.exists(f) for f in [\"main.k\", \"new.k\", \"made\"]]\n";
    if let Ok(value) = attempt(&pool, text).await {
        assert_eq!(value["a"], serde_json::json!([true, false, false]));
    }
}

#[tokio::test]
async fn the_network_can_not_be_reached() {
    let pool = pool().await;
    // Resolving a name needs a socket.
    for text in [
        "import net\na = net.fqdn(\"localhost\")\nassert a == \"\", \"resolved\"\n",
        "import net\na = net.resolve_tcp_addr(\"localhost:80\")\n",
    ] {
        refused(&pool, text).await;
    }
}

#[tokio::test]
async fn plugins_have_nobody_to_call() {
    let pool = pool().await;
    for text in [
        "import kcl_plugin.os\na = os.system(\"id\")\n",
        "import kcl_plugin.project_context as p\na = p.get_project_context()\n",
        "import kcl_plugin\na = 1\n",
    ] {
        let failure = UserError::from(pool.compile(&program(text)).await.unwrap_err());
        assert!(
            failure.message.contains("Konverge supports no plugins"),
            "{failure:?}"
        );
        let hint = failure.message.split_once("hint: ").map(|(_, hint)| hint);
        assert!(
            hint.is_some_and(|hint| hint.contains("`kcl_options`") && hint.contains("option(")),
            "{failure:?}"
        );
        assert!(failure.hints.is_empty(), "{failure:?}");
    }
}

#[tokio::test]
async fn a_link_is_not_followed_out() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("x.k"), "secret = 1\n").unwrap();
    let pool = pool().await;
    let target = outside.path().display();
    let read = [
        ("kcl.mod", ""),
        ("main.k", "import file\na = file.read(\"link\")\n"),
        ("in/x", "inside"),
    ];
    let mut request = request(&read, "", &["main.k"]);
    // One that leads out is not even laid.
    for target in [format!("{target}/x.k"), "../../../etc/passwd".to_owned()] {
        request.links = vec![(path("link"), target)];
        assert!(matches!(
            pool.compile(&request).await,
            Err(KclError::Scratch { .. })
        ));
    }
    // One that stays inside works.
    request.links = vec![(path("link"), "in/x".to_owned())];
    let compiled = pool.compile(&request).await.unwrap();
    assert_eq!(compiled.documents[0]["a"], "inside");
}

#[tokio::test]
async fn an_import_can_not_climb_out() {
    let pool = pool().await;
    refused(&pool, "import ......etc\na = 1\nb = etc.x\n").await;
}

/// Runs Python where the core would run, behind the same walls: what a compile could do that had taken over the whole
/// process.
fn behind_walls(script: &str) -> (bool, String) {
    behind_walls_with(None, script)
}

/// As [`behind_walls`], for a worker that has a folder for temporary files.
fn behind_walls_with(temporary: Option<&Path>, script: &str) -> (bool, String) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let options = runtime.block_on(options());
    let scratch = tempfile::tempdir().unwrap();
    let core = options.core;
    let mut readable = core.readable.clone();
    readable.push(scratch.path().to_owned());
    let walls = konverge_sandbox::SandboxLayers {
        writable: temporary.map(Path::to_owned),
        file_size: 0,
        interpreter: core.interpreter,
        arguments: ["-I", "-S", "-c", script].map(str::to_owned).to_vec(),
        environment: std::collections::BTreeMap::new(),
        work_dir: scratch.path().to_owned(),
        readable,
        folders: core.folders,
        memory: 1 << 30,
        mode: SandboxMode::Required,
        profile: konverge_sandbox::SandboxProfile::Interpreter,
    };
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_konverge"))
        .arg("__worker")
        .arg(serde_json::to_string(&walls).unwrap())
        .env("SECRET_OF_THE_PARENT", "s3cret")
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

#[test]
fn the_walls_let_the_interpreter_work() {
    let (fine, text) = behind_walls("import os, json; print(json.dumps(os.listdir('.')))");
    assert!(fine && text.trim() == "[]", "{text}");
}

#[test]
fn code_that_owns_the_process_has_no_sockets_no_processes_no_files() {
    let outside = tempfile::NamedTempFile::new().unwrap();
    let file = outside.path().display();
    for (what, script) in [
        ("socket", "import socket; socket.socket()".to_owned()),
        (
            "unix socket",
            "import socket; socket.socket(socket.AF_UNIX)".to_owned(),
        ),
        ("pair", "import socket; socket.socketpair()".to_owned()),
        ("fork", "import os; os.fork()".to_owned()),
        (
            "spawn",
            "import os; os.posix_spawn('/bin/sh', ['sh'], {})".to_owned(),
        ),
        (
            "exec",
            "import os; os.execv('/bin/sh', ['sh', '-c', 'exit 0'])".to_owned(),
        ),
        ("kill", "import os; os.kill(1, 0)".to_owned()),
        ("read", format!("open('{file}').read()")),
        ("write", "open('x', 'w')".to_owned()),
        ("write outside", format!("open('{file}', 'a')")),
        ("link", format!("import os; os.symlink('{file}', 'l')")),
        ("proc", "open('/proc/self/environ').read()".to_owned()),
        ("mem", "open('/proc/self/mem', 'rb')".to_owned()),
        ("chmod", "import os; os.chmod('.', 0o777)".to_owned()),
        ("unshare", "import os; os.unshare(0x10000000)".to_owned()),
        ("memfd", "import os; os.memfd_create('x')".to_owned()),
    ] {
        let (fine, text) = behind_walls(&format!("{script}\nprint('GOT THROUGH')"));
        assert!(!fine && !text.contains("GOT THROUGH"), "{what}: {text}");
        assert!(
            ["PermissionError", "Operation not permitted", "AttributeError"]
                .iter()
                .any(|word| text.contains(word)),
            "{what}: {text}"
        );
        assert!(
            !text.contains("AttributeError") || what == "unshare",
            "{what}: {text}"
        );
    }
}

/// What validates data may make files in one folder, because the core does. It can put nothing into them, and nothing
/// elsewhere.
#[test]
fn a_worker_with_temporary_files_writes_no_content() {
    let folder = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let (own, outside) = (folder.path().display(), other.path().display());
    let (fine, text) = behind_walls_with(Some(folder.path()), &format!("open('{own}/made', 'x').close()"));
    assert!(fine, "{text}");
    for script in [
        format!("f = open('{own}/new', 'w'); f.write('x'); f.close()"),
        format!("f = open('{own}/made', 'a'); f.write('x'); f.close()"),
        format!("open('{outside}/new', 'x').close()"),
        "open('new', 'x').close()".to_owned(),
        format!("import os; os.symlink('{outside}', '{own}/link')"),
        format!("import os; os.rename('{own}/made', '{own}/moved')"),
    ] {
        let (fine, text) = behind_walls_with(Some(folder.path()), &format!("{script}\nprint('GOT THROUGH')"));
        assert!(!fine && !text.contains("GOT THROUGH"), "{script}: {text}");
    }
    for made in std::fs::read_dir(folder.path()).unwrap() {
        assert_eq!(made.unwrap().metadata().unwrap().len(), 0);
    }
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0);
}

#[test]
fn code_that_owns_the_process_sees_no_environment() {
    let (fine, text) = behind_walls("import os; print(dict(os.environ))");
    assert!(fine && !text.contains("s3cret"), "{text}");
}

#[test]
fn no_new_privileges_and_no_core_dumps() {
    let script = "import resource\nprint(resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_FSIZE))";
    let (fine, text) = behind_walls(script);
    assert!(fine && text.trim() == "(0, 0) (0, 0)", "{text}");
}

#[tokio::test]
async fn a_sandbox_that_stands_has_no_warning() {
    let pool = pool().await;
    assert_eq!(pool.warning(), None);
    assert!(
        Path::new("/proc/self/environ").exists(),
        "the attempts above want something that exists"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_needs_every_wall_unless_the_protected_branch_says_otherwise() {
    let mut stage = Stage::set_up("").await;
    stage.old_kernel = true;
    let config = stage.monorepo.read("konverge.yaml");
    let trusting = config.replace("kcl: {", "kcl: {sandbox: best-effort, ");
    // That the pull request itself says so does not count.
    stage.propose("add-storefront", |monorepo| {
        storefront(monorepo);
        monorepo.write("konverge.yaml", &trusting);
    });
    let refused = stage.pull_request(7, "add-storefront", "opened");
    let body = stage.comments()[0].1.clone();
    assert!(body.contains("the sandbox cannot be set up: Landlock"), "{body}");
    assert_ne!(refused.outcome.code, Some(0));
    stage
        .monorepo
        .checkout("main")
        .write("konverge.yaml", &trusting)
        .commit("Trust what there is");
    let taken = stage.pull_request(7, "add-storefront", "synchronize");
    taken.outcome.check(0);
    let warning = "warning: KCL is compiled without a full sandbox: Landlock";
    assert!(taken.outcome.stderr.contains(warning), "{}", taken.outcome.stderr);
}
