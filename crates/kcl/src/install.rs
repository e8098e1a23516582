//! Installs a core: `konverge kcl install`.
//!
//! The official package `kcl-lib` is a wheel with one native library. Its hash is pinned here for every version,
//! interpreter and processor ([`PINS`]), so neither the package index nor a proxy needs to be trusted. Nothing in the
//! wheel runs before the check, and the installation gets its final name only when it is complete.

use std::path::{Path, PathBuf};

use sha2::Digest as _;

use super::{
    KclError, Toolchain,
    toolchain::{self, Probe},
};
use konverge_base::{
    checkout::{Checkout, Executable},
    error::SharedError,
    process::Program,
    variables,
};
use konverge_secrets::{AddressParts, credential_in, without_credentials};

const PINS: &str = include_str!("pins.txt");

/// The default package index, unless `--index` or `PIP_INDEX_URL` is set.
const INDEX: &str = "https://pypi.org/simple";

/// The interpreters to try, in order.
const INTERPRETERS: [&str; 8] = [
    "python3",
    "python3.14",
    "python3.13",
    "python3.12",
    "python3.11",
    "python3.10",
    "python3.9",
    "python3.8",
];

/// The progress of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstallStep {
    /// The version is already installed.
    Present,
    /// This wheel is being downloaded.
    Fetching(String),
    /// The received bytes, and the total if it is known.
    Received(u64, Option<u64>),
    /// The wheel has its pinned hash; it is being unpacked and tried.
    Verified,
}

/// The options of an installation.
#[derive(Debug, Clone, Default)]
pub struct InstallOptions {
    /// The interpreter that hosts the core; the default is the first on the PATH that has a wheel.
    pub interpreter: Option<PathBuf>,
    /// The package index; the default is `PIP_INDEX_URL`, or else PyPI.
    pub index: Option<String>,
    /// The target folder; the default is `$XDG_DATA_HOME/konverge`.
    pub data: Option<PathBuf>,
    /// The checkout; no interpreter is taken from it.
    pub checkout: Checkout,
}

/// Returns the versions that can be installed, newest first.
pub fn versions() -> Vec<&'static str> {
    let mut all: Vec<_> = pins().map(|pin| pin.version).collect();
    all.dedup();
    all
}

/// Downloads a core, verifies it and installs it where [`Toolchain::find`] looks. Does nothing if it is already
/// installed.
///
/// # Errors
/// There is no pinned wheel for this interpreter and machine, the index cannot be reached, or the download
/// does not have its pinned hash.
pub async fn install(
    version: &str,
    options: &InstallOptions,
    progress: &mut (dyn FnMut(InstallStep) + Send),
) -> Result<Toolchain, KclError> {
    let data = match &options.data {
        Some(data) => data.clone(),
        None => toolchain::data_folder()?,
    };
    let target = toolchain::folder_of(&data, version)?;
    let checkout = &options.checkout;
    checkout.trust("the folder of the KCL core (XDG_DATA_HOME)", &target)?;
    if let Ok(core) = Toolchain::installed(&data, version, checkout).await {
        progress(InstallStep::Present);
        return Ok(core);
    }
    let failed = |why| failure(version, why);
    let io = |error: std::io::Error| failed(error.into());
    let (interpreter, pin) = choose(version, options.interpreter.as_deref(), checkout).await?;
    progress(InstallStep::Fetching(pin.file.to_owned()));
    if let Some(credential) = options
        .index
        .as_deref()
        .and_then(|index| credential_in(index, AddressParts::default()))
    {
        let why = format!("--index holds {credential}; set PIP_INDEX_URL instead");
        return Err(failed(why.into()));
    }
    let index = options
        .index
        .clone()
        .or_else(|| std::env::var(variables::PIP_INDEX_URL).ok())
        .unwrap_or_else(|| INDEX.to_owned());
    let wheel = fetch(&index, &pin, progress).await?;
    progress(InstallStep::Verified);

    let parent = data.join("kcl");
    std::fs::create_dir_all(&parent).map_err(io)?;
    let fresh = tempfile::Builder::new()
        .prefix(".installing-")
        .tempdir_in(&parent)
        .map_err(io)?;
    let archive = fresh.path().join(pin.file);
    std::fs::write(&archive, wheel).map_err(io)?;
    unpack(interpreter.clone(), &archive, fresh.path())
        .await
        .map_err(failed)?;
    std::fs::remove_file(&archive).map_err(io)?;
    // The core runs once in its temporary folder, but its description gets the paths of its final folder.
    let mut core = Toolchain::in_folder(interpreter, fresh.path(), version).await?;
    let real = fresh.path().canonicalize().map_err(io)?;
    let moved = |path: &Path| match path.strip_prefix(&real) {
        Ok(rest) => target.join(rest),
        Err(_) => path.to_owned(),
    };
    core.extension = moved(&core.extension);
    core.readable = core.readable.iter().map(|path| moved(path)).collect();
    let text = serde_json::to_string_pretty(&core).map_err(|error| failed(error.into()))?;
    std::fs::write(fresh.path().join("core.json"), text).map_err(io)?;
    std::fs::set_permissions(fresh.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .map_err(io)?;
    // From here on the folder is no longer deleted automatically, because it gets its final name.
    let fresh = fresh.keep();
    if let Err(error) = replace_folder(&fresh, &target) {
        let _ = std::fs::remove_dir_all(&fresh);
        // Another process was faster. Its installation is the same, so it is used.
        return Toolchain::installed(&data, version, checkout)
            .await
            .map_err(|_| io(error));
    }
    Toolchain::installed(&data, version, checkout).await
}

/// Moves the new folder to `target`, replacing an incomplete earlier installation.
fn replace_folder(fresh: &Path, target: &Path) -> std::io::Result<()> {
    if target.exists() && !target.join("core.json").exists() {
        std::fs::remove_dir_all(target)?;
    }
    std::fs::rename(fresh, target)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pin {
    version: &'static str,
    tag: &'static str,
    sha256: &'static str,
    file: &'static str,
}

impl Pin {
    fn fits(&self, version: &str, probe: &Probe) -> bool {
        self.version == version
            && self.tag == probe.tag
            && self.platforms().any(|platform| probe.has_platform(platform))
    }

    /// Returns the platform tags that the wheel may have.
    fn platforms(&self) -> impl Iterator<Item = &'static str> {
        let last = self.file.rsplit('-').next().unwrap_or_default();
        last.trim_end_matches(".whl").split('.')
    }

    fn is_of_macos(&self) -> bool {
        self.platforms().any(|platform| platform.starts_with("macosx"))
    }
}

fn pins() -> impl Iterator<Item = Pin> {
    PINS.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (sha256, file) = line.split_once("  ")?;
            let mut parts = file.split('-').skip(1);
            Some(Pin {
                version: parts.next()?,
                tag: parts.next()?,
                sha256,
                file,
            })
        })
}

/// Returns the interpreter that will host a version, and the wheel for it.
async fn choose(
    version: &str,
    wish: Option<&Path>,
    checkout: &Checkout,
) -> Result<(Executable, Pin), KclError> {
    if !pins().any(|pin| pin.version == version) {
        return Err(KclError::UnknownVersion(version.to_owned()));
    }
    let candidates: Vec<PathBuf> = match wish {
        Some(path) => vec![path.to_owned()],
        None => INTERPRETERS.iter().map(PathBuf::from).collect(),
    };
    let mut seen = Vec::new();
    for candidate in candidates {
        let executable = match checkout.executable("--interpreter", &candidate) {
            Ok(executable) => executable,
            // An interpreter that the user named must work; of the default ones any may be missing.
            Err(error) if wish.is_some() => return Err(error.into()),
            Err(_) => continue,
        };
        let Ok(probe) = toolchain::probe(executable, None).await else {
            continue;
        };
        if let Some(pin) = pins().find(|pin| pin.fits(version, &probe)) {
            return Ok((checkout.executable(toolchain::HOST, &probe.executable)?, pin));
        }
        seen.push(format!("{} ({})", candidate.display(), probe.kind()));
    }
    let tags = |is_of: fn(&Pin) -> bool| {
        let pins = pins().filter(|pin| pin.version == version && is_of(pin));
        let tags: std::collections::BTreeSet<_> = pins.map(|pin| pin.tag).collect();
        tags.into_iter().collect::<Vec<_>>().join(", ")
    };
    let why = format!(
        "it needs CPython on Linux with glibc ({}), or on macOS from 11.0 with Apple's processors and from 10.12 with Intel's ({}); found {}",
        tags(|pin| !pin.is_of_macos()),
        tags(Pin::is_of_macos),
        if seen.is_empty() {
            "no Python interpreter".to_owned()
        } else {
            seen.join(", ")
        }
    );
    Err(failure(version, why.into()))
}

fn failure(version: &str, why: SharedError) -> KclError {
    KclError::Install {
        version: version.to_owned(),
        why,
    }
}

async fn fetch(
    index: &str,
    pin: &Pin,
    progress: &mut (dyn FnMut(InstallStep) + Send),
) -> Result<Vec<u8>, KclError> {
    let failed = |why| failure(pin.version, why);
    let shown = without_credentials(index);
    let network = |error: reqwest::Error| failed(error.without_url().into());
    // Redirects to another host are allowed: an index may keep its files there, and their hashes are pinned.
    let client = konverge_http::client()
        .redirect(reqwest::redirect::Policy::default())
        .read_timeout(std::time::Duration::from_secs(60))
        .user_agent("konverge")
        .build()
        .map_err(network)?;
    // The page is the "simple" API of Python's package indexes, which lists the files of a package.
    let page: url::Url = format!("{}/kcl-lib/", index.trim_end_matches('/'))
        .parse()
        .map_err(|error: url::ParseError| {
            failed(SharedError::from(error).context(format!("`{shown}` is not a URL")))
        })?;
    let get = async |url: url::Url| {
        let request = client.get(url).header("accept", "text/html, */*;q=0.1");
        konverge_http::send(request).await?.error_for_status()
    };
    let html = get(page.clone())
        .await
        .map_err(network)?
        .text()
        .await
        .map_err(network)?;
    let link = link_to(&html, pin.file)
        .ok_or_else(|| failed(format!("{shown} does not list `{}`", pin.file).into()))?;
    let url = page
        .join(&link)
        .map_err(|error| failed(SharedError::from(error).context(format!("{shown} has a bad link"))))?;
    let mut response = get(url).await.map_err(network)?;
    let total = response.content_length();
    let mut wheel = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(network)? {
        wheel.extend_from_slice(&chunk);
        progress(InstallStep::Received(wheel.len() as u64, total));
    }
    // Nothing of the download was written to disk or run before this check.
    let found = hex::encode(sha2::Sha256::digest(&wheel));
    if found != pin.sha256 {
        return Err(KclError::Checksum {
            file: pin.file.to_owned(),
            found,
            pinned: pin.sha256.to_owned(),
        });
    }
    Ok(wheel)
}

/// Returns the address of a file in the HTML page of an index: `<a href="…">file</a>`.
fn link_to(html: &str, file: &str) -> Option<String> {
    html.split("<a ").skip(1).find_map(|anchor| {
        let (attributes, rest) = anchor.split_once('>')?;
        if rest.split('<').next()?.trim() != file {
            return None;
        }
        let href = attributes.split_once("href=\"")?.1.split('"').next()?;
        let address = href.split('#').next().unwrap_or(href);
        Some(address.replace("&amp;", "&"))
    })
}

/// Unpacks a wheel, which is a zip archive, with the interpreter's own `zipfile` module. That module never writes
/// outside the folder.
async fn unpack(interpreter: Executable, archive: &Path, folder: &Path) -> Result<(), SharedError> {
    let mut program = Program::new(interpreter).args(["-I", "-m", "zipfile", "-e"]);
    program.args.extend([archive.into(), folder.into()]);
    let ended = program.run().await?;
    if ended.code != Some(0) {
        let stderr = String::from_utf8_lossy(&ended.stderr);
        return Err(stderr.lines().last().unwrap_or("it could not be unpacked").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pin_is_a_hash_and_a_wheel() {
        for pin in pins() {
            assert_eq!(pin.sha256.len(), 64, "{pin:?}");
            assert!(
                pin.file.ends_with(".whl") && pin.tag.starts_with("cp3"),
                "{pin:?}"
            );
        }
        let versions = versions();
        assert_eq!(versions.first(), Some(&super::super::DEFAULT_VERSION));
        assert_eq!(versions.last(), Some(&"0.9.0"));
    }

    fn probe(system: &str, release: &str, machine: &str) -> Probe {
        serde_json::from_value(serde_json::json!({
            "executable": "/usr/bin/python3", "tag": "cp312", "system": system, "release": release,
            "machine": machine, "version": null, "extension": null, "readable": [], "folders": [],
        }))
        .unwrap()
    }

    #[test]
    fn a_machine_gets_the_wheel_of_its_system() {
        let file = |system, release, machine| {
            let probe = probe(system, release, machine);
            let pin = pins().find(|pin| pin.fits("0.13.2", &probe));
            pin.map(|pin| pin.platforms().collect::<Vec<_>>().join(" "))
        };
        let mac = Some("macosx_10_12_x86_64 macosx_11_0_arm64 macosx_10_12_universal2".to_owned());
        let linux = |machine| Some(format!("manylinux_2_17_{machine} manylinux2014_{machine}"));
        for (system, release, machine, wanted) in [
            ("Linux", "", "x86_64", linux("x86_64")),
            ("Linux", "", "aarch64", linux("aarch64")),
            ("Linux", "", "arm64", None),
            ("Darwin", "11.0", "arm64", mac.clone()),
            ("Darwin", "26.1", "arm64", mac.clone()),
            ("Darwin", "10.12.6", "x86_64", mac),
            // An old macOS.
            ("Darwin", "10.11.6", "x86_64", None),
            ("Darwin", "", "arm64", None),
            ("FreeBSD", "", "x86_64", None),
        ] {
            assert_eq!(
                file(system, release, machine),
                wanted,
                "{system} {release} {machine}"
            );
        }
    }

    #[test]
    fn every_version_has_a_wheel_for_macos() {
        for version in versions() {
            assert!(
                pins().any(|pin| pin.version == version && pin.is_of_macos()),
                "{version}"
            );
        }
    }

    #[test]
    fn a_link_is_found_by_its_exact_name() {
        let html = r#"<a href="../x/a-1.whl#sha256=00" data-x="1">a-1.whl</a><br/>
            <a href="https://f/b-1.whl?a=1&amp;b=2#sha256=11">b-1.whl</a>"#;
        assert_eq!(link_to(html, "a-1.whl").as_deref(), Some("../x/a-1.whl"));
        assert_eq!(
            link_to(html, "b-1.whl").as_deref(),
            Some("https://f/b-1.whl?a=1&b=2")
        );
        assert_eq!(link_to(html, "c-1.whl"), None);
    }
}
