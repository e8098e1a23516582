//! Kusion modules that break the protocol or try to escape the sandbox. Each runs as a real process in the sandbox. The
//! correct ones use the real go-plugin library.

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use konverge_kcl::SandboxMode;
use konverge_kusion::module_host::{
    ModuleError, ModuleLimits, ModuleRequest, ModuleRun, ModuleSetup, generate,
};
use tempfile::TempDir;

use crate::support::{apps::hello_binary, cache, installed};
use konverge_base::error::chain;

/// A folder with the files of a stack, and a module.
struct Bench {
    folder: TempDir,
    setup: ModuleSetup,
}

impl Bench {
    fn of(binary: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().canonicalize().unwrap().join("files");
        std::fs::create_dir(&files).unwrap();
        std::fs::write(files.join("main.k"), "a = 1\n").unwrap();
        let setup = ModuleSetup {
            name: "hello".to_owned(),
            binary: binary.to_owned(),
            executable: env!("CARGO_BIN_EXE_konverge").into(),
            work_dir: files.clone(),
            files,
            readable: Vec::new(),
            environment: BTreeMap::new(),
            network: false,
            sandbox: SandboxMode::Required,
            limits: ModuleLimits::default(),
        };
        Self { folder, setup }
    }

    fn hello() -> Self {
        Self::of(&hello_binary())
    }

    /// A shell script in place of a module binary.
    fn script(text: &str) -> Self {
        let mut bench = Self::of(Path::new(""));
        let path: PathBuf = bench.folder.path().canonicalize().unwrap().join("module");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o500)).unwrap();
        bench.setup.binary = path;
        bench.setup.limits.time = Duration::from_secs(3);
        bench
    }

    /// The module in Python, on grpcio: it knows none of go-plugin's own services. A module is one executable, so this
    /// is a copy of the interpreter that runs the program when it starts.
    fn python() -> Self {
        let mut bench = Self::of(Path::new(""));
        let python = installed("python-module", cache().join("python-module/bin/python3"));
        let what = "import sys, site; print(sys.base_prefix); print(sys._base_executable); print(*sys.version_info[:2], sep='.'); print(site.getsitepackages()[0])";
        let output = std::process::Command::new(&python)
            .args(["-c", what])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let [prefix, executable, version, packages] = text.lines().collect::<Vec<_>>()[..] else {
            panic!("{text}");
        };
        let environment = bench.folder.path().canonicalize().unwrap().join("environment");
        let own_packages = environment.join(format!("lib/python{version}/site-packages"));
        std::fs::create_dir_all(&own_packages).unwrap();
        std::fs::create_dir_all(environment.join("bin")).unwrap();
        let home = Path::new(executable).parent().unwrap();
        std::fs::write(
            environment.join("pyvenv.cfg"),
            format!("home = {}\n", home.display()),
        )
        .unwrap();
        let program = include_str!("../../parts/python-module/kusion-module-hello.py");
        let program = format!("import sys\nsys.path.append({packages:?})\n{program}");
        std::fs::write(own_packages.join("sitecustomize.py"), program).unwrap();
        bench.setup.binary = environment.join("bin/module");
        std::fs::copy(Path::new(executable).canonicalize().unwrap(), &bench.setup.binary).unwrap();
        bench.setup.readable = vec![environment, packages.into(), prefix.into()];
        bench
    }

    async fn ask(&self, mode: &str) -> Result<ModuleRun, ModuleError> {
        let request = ModuleRequest {
            project: "shop".to_owned(),
            stack: "dev".to_owned(),
            app: "web".to_owned(),
            dev_config: format!("mode: {mode}\n").into_bytes(),
            platform_config: b"size: 3\n".to_vec(),
            ..ModuleRequest::default()
        };
        generate(&self.setup, &request).await
    }

    async fn error(&self, mode: &str) -> ModuleError {
        self.ask(mode).await.expect_err(mode)
    }
}

fn resource(run: &ModuleRun) -> serde_json::Value {
    let text = std::str::from_utf8(&run.reply.resources[0]).unwrap();
    konverge_base::yaml::from_str(text).unwrap()
}

#[tokio::test]
async fn a_module_on_the_real_go_plugin_answers() {
    let run = Bench::hello().ask("plain").await.unwrap();
    assert!(run.handshake.starts_with("1|1|unix|/"), "{}", run.handshake);
    let resource = resource(&run);
    assert_eq!(resource["id"], "v1:ConfigMap:shop:web-hello");
    assert_eq!(resource["attributes"]["data"]["platform"], "size: 3\n");
    assert_eq!(resource["attributes"]["data"]["module"], "hello");
    // The form of the wire: Go's names in lower case, and bytes as numbers.
    let patcher = String::from_utf8(run.reply.patchers[0].clone()).unwrap();
    assert!(
        patcher.contains("secretkeyref:") && patcher.contains("- 123"),
        "{patcher}"
    );
    assert!(
        Bench::hello()
            .ask("empty")
            .await
            .unwrap()
            .reply
            .resources
            .is_empty()
    );
}

#[tokio::test]
async fn a_module_sees_its_files_and_nothing_else() {
    let mut bench = Bench::hello();
    let region = ("AWS_REGION".to_owned(), "us-east-1".to_owned());
    bench.setup.environment = BTreeMap::from([region]);
    let run = bench.ask("look").await.unwrap();
    assert_eq!(run.warning, None);
    let data = &resource(&run)["attributes"]["data"];
    for (what, allowed) in [
        ("own-file", "true"),
        ("passwd", "false"),
        ("write-stack", "false"),
        ("write-home", "false"),
        ("process", "false"),
        ("network", "denied"),
        ("socket", "denied"),
    ] {
        assert_eq!(data[what], allowed, "{what}: {data:#}");
    }
    let environment = data["environment"].as_str().unwrap();
    let names: Vec<_> = environment
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    let allowed = [
        "AWS_REGION",
        "HOME",
        "LANG",
        "MODULE_PLUGIN",
        "PATH",
        "PLUGIN_MAX_PORT",
        "PLUGIN_MIN_PORT",
        "PLUGIN_PROTOCOL_VERSIONS",
        "PLUGIN_UNIX_SOCKET_DIR",
        "TMPDIR",
    ];
    assert_eq!(names, allowed);
}

#[tokio::test]
async fn the_network_is_open_where_it_is_allowed() {
    let mut bench = Bench::hello();
    bench.setup.network = true;
    let run = bench.ask("look").await.unwrap();
    let data = &resource(&run)["attributes"]["data"];
    assert_eq!(data["network"], "reached", "{data:#}");
    assert_eq!(data["process"], "false", "{data:#}");
    assert_eq!(data["passwd"], "false", "{data:#}");
}

#[tokio::test]
async fn a_module_that_fails_says_why() {
    let bench = Bench::hello();
    let panic = bench.error("panic").await;
    assert_eq!(
        panic,
        ModuleError::Lost("panic: the module has a defect".to_owned())
    );
    assert_eq!(bench.error("exit").await, ModuleError::Lost(String::new()));
    let refused = bench.error("error").await;
    let message = "size: 100% of \"größe\"\nis too much".to_owned();
    assert_eq!(refused, ModuleError::Refused { code: 3, message });
}

#[tokio::test]
async fn a_module_that_takes_too_much_is_stopped() {
    let mut bench = Bench::hello();
    assert_eq!(bench.error("huge").await, ModuleError::TooLarge(64 << 20));
    bench.setup.limits.memory = 1 << 30;
    let lost = bench.error("memory").await;
    assert!(
        matches!(&lost, ModuleError::Lost(why) if why.contains("out of memory")),
        "{lost}"
    );
    bench.setup.limits.time = Duration::from_secs(2);
    assert_eq!(
        bench.error("hang").await,
        ModuleError::Deadline(Duration::from_secs(2))
    );
}

/// go-plugin sends printed output over the connection. If it is not read, the module blocks.
#[tokio::test]
async fn a_module_that_prints_a_lot_still_answers_within_the_limit() {
    let mut bench = Bench::hello();
    assert_eq!(bench.ask("talk").await.unwrap().reply.resources.len(), 1);
    bench.setup.limits.output = 100_000;
    assert_eq!(bench.error("talk").await, ModuleError::TooMuchOutput(100_000));
}

#[tokio::test]
async fn what_is_no_module_is_told_apart() {
    for (script, says) in [
        (
            "echo 'loading the configuration'; exec sleep 9",
            "`loading the configuration` instead of the handshake",
        ),
        ("echo 'no license' >&2; exit 4", "(exit code 4): no license"),
        ("exec sleep 60", "within 3 s"),
        ("while :; do :; done", "within 3 s"),
        (
            ":() { : | : & }; :; exec sleep 60",
            "it exited before the handshake",
        ),
        (
            "echo '1|1|unix|/var/run/docker.sock|grpc|'; exec sleep 9",
            "not in its own folder",
        ),
        ("echo '1|1|tcp|127.0.0.1:22|grpc|'; exec sleep 9", "may not serve"),
        ("echo '1|1|unix|/x|netrpc|'; exec sleep 9", "`netrpc`"),
        (
            "echo \"1|1|unix|$TMPDIR/nobody|grpc|\"; exec sleep 9",
            "nothing listens",
        ),
        ("exec yes | head -c 20000000", "it exited before the handshake"),
        ("exec yes yes-that-is-no-handshake", "`yes-that-is-no-handshake`"),
        ("exec yes something-much >&2", "prints more than"),
    ] {
        let error = chain(&Bench::script(script).error("plain").await);
        assert!(error.contains(says), "{script}: {error}");
    }
    let mut bench = Bench::script("");
    std::fs::set_permissions(&bench.setup.binary, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(&bench.setup.binary, [0x7f, b'E', b'L', b'F', 9, 9]).unwrap();
    let error = bench.error("plain").await;
    assert!(matches!(error, ModuleError::EndedEarly { .. }), "{error}");
    bench.setup.binary = "/nowhere/module".into();
    let error = bench.error("plain").await;
    assert!(matches!(error, ModuleError::Start(_)), "{error}");
}

#[tokio::test]
async fn a_module_in_python_keeps_to_the_same_rules() {
    let mut bench = Bench::python();
    let run = bench.ask("plain").await.unwrap();
    let made = resource(&run);
    assert_eq!(made["attributes"]["data"]["platform"], "size: 3");
    assert_eq!(
        made["attributes"]["metadata"]["creationTimestamp"],
        serde_json::Value::Null
    );
    let patcher = String::from_utf8(run.reply.patchers[0].clone()).unwrap();
    assert!(
        patcher.contains("secretkeyref:") && patcher.contains("[123, "),
        "{patcher}"
    );
    assert!(bench.ask("empty").await.unwrap().reply.resources.is_empty());

    let refused = bench.error("error").await;
    let message = "size: 100% of \"größe\"\nis too much".to_owned();
    assert_eq!(refused, ModuleError::Refused { code: 3, message });
    let panic = bench.error("panic").await;
    assert!(
        matches!(&panic, ModuleError::Refused { code: 2, message } if message.contains("the module has a defect")),
        "{panic}"
    );
    assert_eq!(bench.error("exit").await, ModuleError::Lost(String::new()));
    assert!(matches!(bench.error("garbled").await, ModuleError::Garbled(_)));
    assert_eq!(bench.error("huge").await, ModuleError::TooLarge(64 << 20));
    // What it prints comes by its standard output, which is read to the end.
    assert!(bench.ask("talk").await.is_ok());
    bench.setup.limits.output = 100_000;
    assert_eq!(bench.error("talk").await, ModuleError::TooMuchOutput(100_000));
    // No process starts another one: `EPERM` at the first.
    let forks = bench.ask("forks").await.unwrap();
    assert_eq!(resource(&forks)["attributes"]["data"]["platform"], "0 1");
    bench.setup.limits.time = Duration::from_secs(5);
    assert_eq!(
        bench.error("hang").await,
        ModuleError::Deadline(Duration::from_secs(5))
    );
}

/// Without the seccomp filter, only killing the process group ends the child processes.
#[tokio::test]
async fn nothing_that_a_module_started_outlives_its_call() {
    let before = processes();
    let errors = [
        Bench::hello().error("exit").await,
        Bench::script("exec sleep 4242").error("plain").await,
    ];
    assert_eq!(errors.len(), 2);
    // The kernel takes its time to end what was killed.
    let left = async {
        while processes().iter().any(|name| !before.contains(name)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(30), left).await;
    assert!(ended.is_ok(), "{:?}", processes());
}

/// The command lines of this process's children that are modules.
fn processes() -> Vec<String> {
    let children = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = children.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with("sleep\u{0}4242")).collect()
}
