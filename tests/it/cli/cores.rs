//! The core that fits: `init` tries cores where stacks do not compile, and errors say what to try and what to write.

use std::path::{Path, PathBuf};

use konverge_kcl::{InstallOptions, install};

use crate::support::{
    git::Repository,
    konfigs,
    process::{Konverge, Outcome},
    repository_shapes::{self, SHAPES},
};

/// A folder of Konverge's data with cores; they are fetched once.
async fn with_cores(versions: &[&str]) -> PathBuf {
    let data = crate::support::cache().join("cores/konverge");
    for version in versions {
        let options = InstallOptions {
            data: Some(data.clone()),
            ..InstallOptions::default()
        };
        install(version, &options, &mut |_| {}).await.unwrap();
    }
    data.parent().unwrap().to_owned()
}

/// A command that finds its cores among those that are installed there, and downloads none.
fn konverge(repository: &Repository, cores: &Path, arguments: &[&str]) -> Outcome {
    Konverge::new(arguments)
        .dir(repository.path())
        .env("XDG_DATA_HOME", cores)
        .env("KONVERGE_OFFLINE", "1")
        .limit(std::time::Duration::from_secs(600))
        .run()
}

fn with_one_core(repository: &Repository, arguments: &[&str]) -> Outcome {
    Konverge::new(arguments).dir(repository.path()).with_kcl().run()
}

fn version_in(repository: &Repository) -> String {
    let text = repository.read("konverge.yaml");
    let version = text.lines().find_map(|line| line.strip_prefix("  version: "));
    version.unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "fetches cores from the package index: make test-all"]
async fn init_writes_the_newest_core_that_compiles_the_most() {
    let cores = with_cores(&konverge_kcl::versions()).await;
    for (make, core, tried) in [
        (
            repository_shapes::import_names as fn() -> Repository,
            "0.10.0",
            "tried: 0.10.0: 3 of 3; 0.13.2: 0 of 3 (one import name for two packages).",
        ),
        (
            repository_shapes::private_members,
            "0.13.0",
            "tried: 0.13.0: 3 of 3; 0.13.2: 0 of 3 (private members of another package).",
        ),
        (repository_shapes::unequal_lists, "0.13.2", ""),
        (repository_shapes::hidden_imports, "0.10.0", "0.10.0: 3 of 3"),
    ] {
        let repository = make();
        let said = konverge(&repository, &cores, &["init"]).expect(0).stderr;
        assert_eq!(version_in(&repository), core, "{said}");
        assert!(said.contains(&format!("  {core}    3 of 3 compile")), "{said}");
        let config = repository.read("konverge.yaml");
        assert!(config.contains(tried), "{config}");
        konverge(&repository, &cores, &["build", "--all"]).expect(0);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "fetches cores from the package index: make test-all"]
async fn of_cores_that_compile_as_many_the_one_that_leaves_less_to_change_is_written() {
    let cores = with_cores(&konverge_kcl::versions()).await;
    let repository = repository_shapes::old_language();
    repository.replace(
        "models/project.k",
        "PROJECT = ctx.get_project_context()[\"name\"]\n",
        "import models.metadata\nPROJECT = metadata.__NAME\n",
    );
    repository
        .write("models/metadata/metadata.k", "__NAME = \"shop\"\n")
        .commit("Private");
    let said = konverge(&repository, &cores, &["init"]).expect(1).stderr;
    assert_eq!(version_in(&repository), "0.13.0", "{said}");
    assert!(said.contains("0 of 3 compile"), "{said}");
}

/// The migration guide, which has the table of shapes and cores.
const TABLE: &str = "docs/guides/migrate.md";

/// The table of shapes and cores, as it stands in the guide. `scripts/core-table` writes it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "fetches cores from the package index: make test-all"]
async fn the_table_of_the_migration_guide_is_what_the_cores_do() {
    let versions = konverge_kcl::versions();
    let cores = with_cores(&versions).await;
    let repositories: Vec<_> = SHAPES.iter().map(|shape| (shape.make)()).collect();
    let mut rows: Vec<(String, String, String)> = Vec::new();
    for version in versions.iter().rev() {
        let counted = repositories.iter().map(|repository| {
            repository.write("konverge.yaml", format!("kcl: {{version: {version}}}\n"));
            let built = konverge(repository, &cores, &["build", "--all", "--output", "json"]);
            let failed = built.stderr.matches("error: ").count();
            assert_eq!(failed > 0, built.code != Some(0), "{}", built.stderr);
            let compiled = match built.code {
                Some(0) => 3,
                _ => 3 - failed_stacks(&built.stderr),
            };
            format!("{compiled} of 3")
        });
        let counted = counted.collect::<Vec<_>>().join(" | ");
        match rows.last_mut().filter(|(.., last)| *last == counted) {
            Some((_, newest, _)) => *newest = (*version).to_owned(),
            None => rows.push(((*version).to_owned(), (*version).to_owned(), counted)),
        }
    }
    let names: Vec<_> = SHAPES.iter().map(|shape| shape.name).collect();
    let mut table = format!(
        "| core | {} |\n|{}\n",
        names.join(" | "),
        "---|".repeat(names.len() + 1)
    );
    for (oldest, newest, counted) in rows {
        let range = if oldest == newest {
            oldest
        } else {
            format!("{oldest} to {newest}")
        };
        table.push_str(&format!("| {range} | {counted} |\n"));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE);
    let guide = std::fs::read_to_string(&path).unwrap();
    if std::env::var_os("KONVERGE_WRITE_TABLE").is_some() {
        let start = guide.find("| core | one import name").unwrap();
        let end = start + guide[start..].find("\n\n").unwrap() + 1;
        std::fs::write(&path, format!("{}{table}{}", &guide[..start], &guide[end..])).unwrap();
        return;
    }
    assert!(guide.contains(&table), "the guide should have\n{table}");
}

/// The stacks that the errors of `build` name.
fn failed_stacks(text: &str) -> usize {
    ["shop/dev", "shop/test", "shop/prod"]
        .iter()
        .filter(|stack| {
            let mut errors = text.lines().filter(|line| line.starts_with("error: "));
            errors.any(|line| line.contains(*stack))
        })
        .count()
}

/// Without a core that fits on this machine it is said what was tried and what could not be.
#[test]
fn what_cannot_be_tried_is_said() {
    let repository = repository_shapes::import_names();
    // The files are written, and it is not a success.
    let said = with_one_core(&repository, &["init"]).expect(1).stderr;
    for part in [
        "error: the KCL core 0.13.2 compiles no stack: the files are written, but nothing can be previewed yet",
        "tried: every stack with the KCL core",
        "0.13.2    0 of 3 compile      one import name for two packages (3 stacks)",
        "not tried: ",
        "KONVERGE_KCL names 0.13.2; unset it to try others",
        "try `kcl.version: 0.10.0`",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(version_in(&repository), "0.13.2");
    // The error is the last word: nobody is told to go on.
    assert!(!said.contains("open a pull request"), "{said}");
    let (_, last) = said.rsplit_once("error: ").unwrap();
    assert!(
        last.starts_with("the KCL core 0.13.2 compiles no stack"),
        "{said}"
    );
    // Where everything compiles nothing else is asked.
    let repository = konfigs::one_stack();
    let said = with_one_core(&repository, &["init"]).expect(0).stderr;
    assert!(
        said.contains("1 of 1 compile")
            && !said.contains("not tried")
            && said.contains("open a pull request"),
        "{said}"
    );
    // A machine without any core, and without permission to install one.
    let repository = konfigs::one_stack();
    let bare = Konverge::new(["init", "--no-install"]).dir(repository.path());
    let said = bare.run().expect(0).stderr;
    assert!(
        said.contains("not tried: 0.13.2") && said.contains("`--no-install` was given"),
        "{said}"
    );
    assert_eq!(version_in(&repository), "0.13.2");
    let repository = konfigs::one_stack();
    let unreachable = Konverge::new(["init"])
        .dir(repository.path())
        .env("PIP_INDEX_URL", "http://127.0.0.1:9/simple");
    let said = unreachable.run().expect(0).stderr;
    assert!(
        said.contains("not tried: 0.13.2") && said.contains("Connection refused"),
        "{said}"
    );
    assert_eq!(said.matches("installing the KCL core").count(), 1, "{said}");
}

/// The hint stands below the error that it is for, and the edits that hints name make the code compile.
#[test]
fn code_of_kcl_0_4_compiles_after_the_edits_that_its_hints_name() {
    let repository = repository_shapes::old_language();
    let build = |arguments: &[&str]| with_one_core(&repository, arguments);
    let said = build(&["build", "shop/dev"]).expect(1).stderr;
    for (line, hint) in [
        ("name 'false' is not defined", "write `False`"),
        ("name 'true' is not defined", "write `True`"),
        (
            "`import kcl_plugin.project_context`: Konverge supports no plugins",
            "`option(\"NAME\")`",
        ),
        ("name 'notfieldRef' is not defined", "write `not fieldRef`"),
        ("Cannot add member '__settings__'", "remove `__settings__`"),
        ("expected 2 positional arguments, found 1", "add `Undefined`"),
        (
            "expected Deployment, got StatefulSet",
            "`_workload: Deployment | StatefulSet = …`",
        ),
        ("Can not change the value of 'source'", "shop/base/base.k"),
    ] {
        let mut lines = said.lines().skip_while(|text| !text.contains(line));
        let place = lines.next().unwrap_or_else(|| panic!("{line}: {said}"));
        let below: Vec<_> = lines.take(3).collect();
        assert!(
            below
                .iter()
                .any(|text| text.contains("hint: ") && text.contains(hint)),
            "{line}: {below:#?}\n{said}"
        );
        assert!(place.contains(".k:") || said.contains("--> "), "{place}");
    }
    // What the last error hides: the attribute that None was given to.
    let rewritten = repository_shapes::rewritten();
    let edited = |path: &str| repository.write(path, rewritten.read(path));
    for path in [
        "models/backend/backend.k",
        "models/env.k",
        "models/project.k",
        "shop/base/base.k",
        "shop/dev/main.k",
        "shop/test/main.k",
        "shop/prod/main.k",
    ] {
        edited(path);
    }
    repository.write(
        "models/database.k",
        repository
            .read("models/database.k")
            .replace("= false", "= False")
            .replace("= true", "= True"),
    );
    let said = build(&["build", "shop/dev"]).expect(1).stderr;
    assert!(
        said.contains("make it optional: `groups?:` in the schema `Rule`"),
        "{said}"
    );
    edited("models/database.k");
    build(&["build", "--all"]).expect(0);
}
