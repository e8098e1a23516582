//! What pins a package: a checksum, a commit, both, or nothing; and addresses that nobody serves any more.

use std::sync::Arc;

use konverge_base::{
    error::chain,
    model::{package_lock::PackageLock, stack::RemotePackage},
};
use konverge_kcl::{KclError, KnownPackages, PackageFetcher, PackageTrust, PathEntry};
use serde_json::json;

use super::packages::{CODE, MODULE, library, packages, resolve, wanted};
use crate::support::{
    cluster::Cluster,
    git::Repository,
    git_server::GitServer,
    package_registry::{PackageRegistry, sum},
};

fn url(repository: &Repository) -> String {
    format!("file://{}", repository.path().display())
}

/// The package `lib` with the lines of its lock entry.
fn locked(requirement: &serde_json::Value, entry: &str) -> Vec<RemotePackage> {
    let lock = PackageLock::parse(format!("[dependencies.lib]\n{entry}").as_bytes()).unwrap();
    let mut wanted = wanted(requirement, None);
    wanted[0].locked = lock.find("lib").unwrap();
    wanted
}

async fn value(packages: &PackageFetcher, wanted: &[RemotePackage]) -> Result<String, KclError> {
    let found = resolve(packages, wanted, "").await?;
    Ok(std::fs::read_to_string(found[0].1.join("size.k")).unwrap())
}

/// Moves the tag `v1` to another content.
fn move_tag(library: &Repository) {
    library.write("size.k", CODE.replace('2', "200"));
    library.commit("Other code");
    library.git(["tag", "--force", "v1"]);
}

#[tokio::test]
async fn a_tag_with_a_recorded_commit_is_that_commit() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    let requirement = json!({"git": url(&library), "tag": "v1"});
    let commit = library.rev("main");
    move_tag(&library);
    for (at, key) in ["commit", "git_commit"].into_iter().enumerate() {
        let folder = folder.path().join(at.to_string());
        std::fs::create_dir(&folder).unwrap();
        let packages = packages(&folder).await;
        let entry = format!("git_tag = \"v1\"\n{key} = \"{commit}\"\n");
        let found = value(&packages, &locked(&requirement, &entry)).await.unwrap();
        assert_eq!(found, CODE, "{key}");
        // A checksum beside it is compared too.
        let entry = format!("{entry}sum = \"{}\"\n", sum(&["other"]));
        let error = value(&packages, &locked(&requirement, &entry)).await.unwrap_err();
        assert!(matches!(error, KclError::PackageDiffers { .. }), "{error}");
    }
    let packages = packages(folder.path()).await;
    let entry = format!("git_commit = \"{}\"\n", "0".repeat(40));
    let error = value(&packages, &locked(&requirement, &entry)).await.unwrap_err();
    assert!(chain(&error).contains("git: "), "{error}");
}

#[tokio::test]
async fn what_nothing_pins_is_looked_up_once_in_a_run() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    let requirement = json!({"git": url(&library), "tag": "v1"});
    let commit = library.rev("main");
    let first = packages(folder.path()).await;
    // As today's tools write it: no checksum, no commit.
    let entry = "name = \"lib\"\nfull_name = \"lib_0.1.0\"\nversion = \"0.1.0\"\ngit_tag = \"v1\"\n";
    let wanted = locked(&requirement, entry);
    let lock = PackageLock::default();
    let found = first.resolve(&wanted, &lock).await.unwrap();
    let said = found[0].unlocked.as_ref().unwrap().to_string();
    assert!(
        said.contains("the tag `v1` of file://") && said.ends_with(&commit),
        "{said}"
    );
    move_tag(&library);
    // The same run stays with what it found, another one finds what is there now.
    assert_eq!(value(&first, &wanted).await.unwrap(), CODE);
    let second = packages(folder.path()).await;
    assert_eq!(value(&second, &wanted).await.unwrap(), CODE.replace('2', "200"));

    let offline = PackageFetcher {
        offline: true,
        ..packages(folder.path()).await
    };
    // A pull request from outside asks for an address that it may ask for.
    let public = locked(&json!({"git": "https://127.0.0.1:1/lib", "tag": "v1"}), entry);
    let mut known = KnownPackages::default();
    known.add_wanted(&public);
    let outside = PackageFetcher {
        asker: PackageTrust::Outside(known),
        ..packages(folder.path()).await
    };
    for (fetcher, wanted, why) in [
        (&offline, &wanted, "this is an offline run"),
        (&outside, &public, "gets only what its target branch locks"),
    ] {
        let error = fetcher.resolve(wanted, &lock).await.unwrap_err();
        assert!(matches!(error, KclError::NotLocked { .. }), "{error}");
        let failure = konverge_base::error::UserError::from(error);
        assert!(failure.message.contains(why), "{failure:?}");
        assert!(
            failure.hints[0].contains("run `konverge kcl lock`"),
            "{failure:?}"
        );
    }
}

/// A pull request from outside gets the commit that the base has locked, and no other one.
#[tokio::test]
async fn a_stranger_chooses_no_commit() {
    let folder = tempfile::tempdir().unwrap();
    let there = json!({"git": "git://127.0.0.1:1/lib", "tag": "v1"});
    let entry = |digit: &str| format!("git_tag = \"v1\"\ngit_commit = \"{}\"\n", digit.repeat(40));
    let lock = |digit: &str| format!("[dependencies.lib]\n{}", entry(digit));
    let mut known = KnownPackages::default();
    known.add_wanted(&locked(&there, &entry("a")));
    known.add_lock(&PackageLock::parse(lock("a").as_bytes()).unwrap());
    let stranger = PackageFetcher {
        asker: PackageTrust::Outside(known),
        ..packages(folder.path()).await
    };
    // A port that nobody serves: what is let through is asked for, over TLS.
    let error = resolve(&stranger, &locked(&there, &entry("a")), &lock("a"))
        .await
        .unwrap_err();
    let said = chain(&error);
    assert!(
        said.contains("git: ") && said.contains("https://127.0.0.1:1/lib"),
        "{said}"
    );
    for (entry, lock) in [(entry("b"), lock("a")), (entry("a"), lock("b"))] {
        let error = resolve(&stranger, &locked(&there, &entry), &lock)
            .await
            .unwrap_err();
        assert!(matches!(error, KclError::UnknownPackage(_)), "{error}");
    }
}

#[tokio::test]
async fn a_raised_tag_without_its_lock_is_no_forgery() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    let requirement = json!({"git": url(&library), "tag": "v2"});
    let entry = format!("git_tag = \"v1\"\nsum = \"{}\"\n", sum(&[MODULE, CODE]));
    let error = value(&packages(folder.path()).await, &locked(&requirement, &entry)).await;
    let said = chain(&error.unwrap_err());
    assert!(said.contains("kcl.mod asks for v2, the lock has v1"), "{said}");
}

/// kpm turns `git://` into `https://`; git's own `insteadOf` comes first.
#[tokio::test(flavor = "multi_thread")]
async fn git_addresses_are_fetched_over_tls() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    let server = GitServer::start(Cluster::shared());
    let https = server.serve(&library, "public/lib");
    let old = https.replace("https://", "git://");
    let mut fetcher = packages(folder.path()).await;
    let authority = server.authority().display().to_string();
    fetcher.environment.insert("GIT_SSL_CAINFO".to_owned(), authority);
    let pinned = sum(&[MODULE, CODE]);
    let requirement = json!({"git": old, "tag": "v1"});
    let wanted = wanted(&requirement, Some(&pinned));
    assert_eq!(value(&fetcher, &wanted).await.unwrap(), CODE);
    assert!(!server.asked("public/lib").is_empty());

    // A stranger gets it in the same way.
    let mut known = KnownPackages::default();
    known.add_wanted(&wanted);
    let elsewhere = tempfile::tempdir().unwrap();
    let stranger = PackageFetcher {
        asker: PackageTrust::Outside(known),
        folder: elsewhere.path().canonicalize().unwrap(),
        whole: Arc::default(),
        ..fetcher.clone()
    };
    assert_eq!(value(&stranger, &wanted).await.unwrap(), CODE);

    // The rule of the user's git names another place; nobody serves the one in kcl.mod.
    let mut configured = packages(elsewhere.path()).await;
    let rules = [
        ("GIT_CONFIG_COUNT", "1".to_owned()),
        (
            "GIT_CONFIG_KEY_0",
            format!("url.file://{}.insteadOf", library.path().display()),
        ),
        ("GIT_CONFIG_VALUE_0", "git://127.0.0.1:1/lib".to_owned()),
    ];
    let rules = rules.map(|(name, value)| (name.to_owned(), value));
    configured.environment.extend(rules);
    let elsewhere = json!({"git": "git://127.0.0.1:1/lib", "tag": "v1"});
    let found = value(&configured, &super::packages::wanted(&elsewhere, Some(&pinned))).await;
    assert_eq!(found.unwrap(), CODE);
}

/// The names in `kcl.mod`, the versions of the packages and the places, in the form that kpm writes; then nothing is to
/// do.
#[tokio::test(flavor = "multi_thread")]
async fn packages_and_their_dependencies_are_locked_in_the_form_of_kpm() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    let registry = PackageRegistry::start().await;
    let git = url(&library);
    let outer = format!(
        "[package]\nname = \"outer\"\nversion = \"1.0.0\"\n[dependencies]\nlib = {{ git = \"{git}\", tag = \"v1\" }}\n"
    );
    registry.push(
        "kcl/my-outer",
        "1.0",
        &[("kcl.mod", &outer), ("outer.k", "import lib\n")],
    );
    let host = registry.host().to_owned();
    let requirement = json!({"oci": format!("oci://{host}/kcl/my-outer"), "tag": "1.0"});
    let mut wanted = wanted(&requirement, None);
    wanted[0].name = "my_outer".to_owned();
    wanted[0].declared = "my-outer".to_owned();
    let by_path = [PathEntry {
        declared: "konfig".to_owned(),
        name: Some("konfig".to_owned()),
        version: Some("0.14.0".to_owned()),
    }];
    let fetcher = packages(folder.path()).await;
    let lock = async |text: &str, wanted: &[RemotePackage], renewed: &[String]| {
        let known = PackageLock::parse(text.as_bytes()).unwrap();
        let mut wanted = wanted.to_vec();
        for package in &mut wanted {
            package.locked = known.find(&package.name).unwrap_or_default();
        }
        fetcher.lock(&wanted, &known, text, renewed, &by_path).await
    };
    let first = lock("", &wanted, &[]).await.unwrap();
    let commit = library.rev("main");
    assert_eq!(
        first.text,
        format!(
            "[dependencies]\n  [dependencies.konfig]\n    name = \"konfig\"\n    full_name = \"konfig_0.14.0\"\n    version = \"0.14.0\"\n  \
             [dependencies.lib]\n    name = \"lib\"\n    full_name = \"lib_0.1.0\"\n    version = \"0.1.0\"\n    sum = \"{}\"\n    \
             url = \"{git}\"\n    git_tag = \"v1\"\n    git_commit = \"{commit}\"\n  \
             [dependencies.my-outer]\n    name = \"my-outer\"\n    full_name = \"outer_1.0.0\"\n    version = \"1.0.0\"\n    sum = \"{}\"\n    \
             reg = \"{host}\"\n    repo = \"kcl/my-outer\"\n    oci_tag = \"1.0\"\n",
            sum(&[MODULE, CODE]),
            sum(&[&outer, "import lib\n"]),
        )
    );
    // kpm takes an entry with at most one of these.
    let table: toml::Table = first.text.parse().unwrap();
    for (_, entry) in table["dependencies"].as_table().unwrap() {
        let references = ["branch", "commit", "git_tag"];
        assert!(references.iter().filter(|key| entry.get(**key).is_some()).count() <= 1);
        assert!(entry.as_table().unwrap().values().all(toml::Value::is_str));
    }
    let names =
        |changed: &[(String, String)]| changed.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&first.changed), ["my-outer", "lib"]);
    assert_eq!(first.changed[1].1, format!("v1: commit {commit}"));

    let again = lock(&first.text, &wanted, &[]).await.unwrap();
    assert_eq!((again.text.as_str(), again.unchanged), (first.text.as_str(), 2));
    // A tag that moved is looked up only where that is asked for.
    move_tag(&library);
    let same = lock(&first.text, &wanted, &[]).await.unwrap();
    assert_eq!(same.text, first.text);
    let other = packages(folder.path()).await;
    let known = PackageLock::parse(first.text.as_bytes()).unwrap();
    let mut own = wanted.clone();
    own[0].locked = known.find("my_outer").unwrap();
    let renewed = other
        .lock(&own, &known, &first.text, &["lib".to_owned()], &by_path)
        .await
        .unwrap();
    assert_eq!(names(&renewed.changed), ["lib"]);
    assert!(renewed.text.contains(&library.rev("main")), "{}", renewed.text);
    assert_eq!(
        renewed.text.split("  [dependencies.").nth(3),
        first.text.split("  [dependencies.").nth(3)
    );
    // A raised version is looked up too.
    registry.push("kcl/my-outer", "2.0", &[("kcl.mod", &outer), ("outer.k", "")]);
    let raised = json!({"oci": format!("oci://{host}/kcl/my-outer"), "tag": "2.0"});
    wanted[0].requirement = raised.to_string();
    let raised = lock(&first.text, &wanted, &[]).await.unwrap();
    assert_eq!(names(&raised.changed), ["my-outer"]);
    assert!(raised.text.contains("oci_tag = \"2.0\""), "{}", raised.text);

    // A whole commit needs no look-up, and its entry follows it.
    let (one, two) = (library.rev("HEAD~1"), library.rev("HEAD"));
    let by_commit = |commit: &str| super::packages::wanted(&json!({"git": git, "commit": commit}), None);
    let first = lock("", &by_commit(&one), &[]).await.unwrap();
    assert!(
        first.text.contains(&format!("    commit = \"{one}\"\n")),
        "{}",
        first.text
    );
    assert!(!first.text.contains("git_commit"), "{}", first.text);
    let raised = lock(&first.text, &by_commit(&two), &[]).await.unwrap();
    assert!(
        raised.text.contains(&format!("    commit = \"{two}\"\n")),
        "{}",
        raised.text
    );
    assert!(!raised.text.contains(&one) && raised.text.contains(&sum(&[MODULE, &CODE.replace('2', "200")])));
}
