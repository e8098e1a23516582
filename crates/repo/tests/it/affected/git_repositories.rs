//! Reading real repositories: shallow and partial clones, submodules, links, merges, and what lies on disk.

use konverge_base::{
    error::{UserError, chain},
    model::{
        CommitId, RepoPath,
        file_source::{FileKind, Source, TreeId},
    },
};
use konverge_repo::git::{CommitFolder, GitError, Repository};

use crate::support::git::Repository as Real;

fn open(real: &Real) -> Repository {
    Repository::discover(real.path()).unwrap()
}

fn paths(source: &dyn Source) -> Vec<&str> {
    source.files().keys().map(RepoPath::as_str).collect()
}

fn text(source: &dyn Source, path: &str) -> String {
    let path = RepoPath::normalize(path).unwrap();
    let bytes = source.read_path(&path).unwrap().unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn id(text: &str) -> CommitId {
    text.parse().unwrap()
}

/// Three commits on main, a branch from the second.
fn history() -> (Real, Vec<String>) {
    let real = Real::init();
    let mut commits = Vec::new();
    for number in 0..3 {
        real.write("a/file.k", format!("v = {number}\n"));
        commits.push(real.commit("step"));
    }
    real.git(["checkout", "--quiet", "-b", "feature", commits[1].as_str()]);
    real.write("b.k", "b = 1\n");
    commits.push(real.commit("feature"));
    (real, commits)
}

#[test]
fn trees_are_read_without_a_checkout() {
    let (real, commits) = history();
    let repository = open(&real);
    let source = repository.revision(&id(&commits[2])).unwrap();
    assert_eq!(paths(source.as_ref()), ["a/file.k"]);
    assert_eq!(text(source.as_ref(), "a/file.k"), "v = 2\n");
    assert_eq!(repository.default_branch().unwrap(), "main");
    let base = repository.merge_base(&id(&commits[2]), &id(&commits[3])).unwrap();
    assert_eq!(base.as_str(), commits[1]);
    let unknown = repository.resolve("nowhere").unwrap_err();
    assert!(matches!(unknown, GitError::UnknownRevision(_)), "{unknown}");
}

#[test]
fn an_octopus_has_a_merge_base() {
    let (real, commits) = history();
    for name in ["x", "y"] {
        real.git(["checkout", "--quiet", "-b", name, commits[0].as_str()]);
        real.write(&format!("{name}.k"), "v = 1\n");
        real.commit(name);
    }
    real.checkout("main");
    real.git(["merge", "--quiet", "-m", "octopus", "x", "y"]);
    let repository = open(&real);
    let merge = repository.resolve("HEAD").unwrap();
    assert_eq!(repository.parents(&merge).unwrap().len(), 3);
    let base = repository.merge_base(&merge, &id(&commits[3])).unwrap();
    assert_eq!(base.as_str(), commits[1]);
}

/// What a sparse checkout leaves out was not deleted.
#[test]
fn a_sparse_checkout_has_every_file() {
    let (real, _) = history();
    real.write("c/gone.k", "v = 1\n").write("d/kept.k", "v = 1\n");
    real.commit("more");
    real.git(["sparse-checkout", "set", "c"]);
    assert!(!real.path().join("a").exists());
    std::fs::remove_file(real.path().join("c/gone.k")).unwrap();
    let tree = open(&real).worktree().unwrap();
    assert_eq!(paths(tree.as_ref()), ["a/file.k", "b.k", "d/kept.k"]);
    assert_eq!(text(tree.as_ref(), "d/kept.k"), "v = 1\n");
    // A file that lies there all the same is read.
    real.write("d/kept.k", "v = 2\n");
    let tree = open(&real).worktree().unwrap();
    assert_eq!(text(tree.as_ref(), "d/kept.k"), "v = 2\n");
}

#[test]
fn the_working_tree_has_gits_own_ids() {
    let (real, _) = history();
    real.write(".gitignore", "ignored\n");
    real.write("ignored", "x");
    real.write("new/untracked.k", "n = 1\n");
    real.write("b.k", "b = 2\n");
    std::fs::remove_file(real.path().join("a/file.k")).unwrap();
    let repository = open(&real);
    assert!(repository.is_dirty().unwrap());
    let tree = repository.worktree().unwrap();
    assert_eq!(paths(tree.as_ref()), [".gitignore", "b.k", "new/untracked.k"]);
    assert_eq!(text(tree.as_ref(), "b.k"), "b = 2\n");
    let before: Vec<_> = tree
        .files()
        .iter()
        .map(|(path, entry)| (path.clone(), *entry))
        .collect();
    real.commit("all of it");
    let committed = repository.revision(&repository.resolve("HEAD").unwrap()).unwrap();
    let after: Vec<_> = committed
        .files()
        .iter()
        .map(|(path, entry)| (path.clone(), *entry))
        .collect();
    assert_eq!(before, after);
    assert!(!repository.is_dirty().unwrap());
}

#[tokio::test]
async fn a_shallow_clone_is_deepened_as_far_as_needed() {
    let (real, commits) = history();
    let shallow = real.clone_with(&["--depth=1", "--no-single-branch"]);
    let repository = open(&shallow);
    assert!(repository.is_shallow().unwrap());
    let (main, feature) = (id(&commits[2]), id(&commits[3]));
    let error = repository.merge_base(&main, &feature).unwrap_err();
    assert!(matches!(error, GitError::Shallow(_)), "{error}");
    let failure = UserError::from(error);
    assert!(
        failure.hints.iter().any(|hint| hint.contains("fetch-depth: 0")),
        "{failure:?}"
    );
    let base = repository
        .merge_base_fetching(&main, &feature, None)
        .await
        .unwrap();
    assert_eq!(base.as_str(), commits[1]);
    assert_eq!(
        text(repository.revision(&base).unwrap().as_ref(), "a/file.k"),
        "v = 1\n"
    );
}

#[tokio::test]
async fn one_missing_commit_is_fetched_without_its_history() {
    let (real, commits) = history();
    real.checkout("main");
    let shallow = real.clone_with(&["--depth=1"]);
    let repository = open(&shallow);
    let first = id(&commits[0]);
    assert!(repository.revision(&first).is_err());
    repository.ensure(&first, None).await.unwrap();
    assert_eq!(
        text(repository.revision(&first).unwrap().as_ref(), "a/file.k"),
        "v = 0\n"
    );
    assert!(
        repository.is_shallow().unwrap(),
        "nothing more than asked for was fetched"
    );
    let absent = id(&"1".repeat(40));
    let error = repository.ensure(&absent, None).await.unwrap_err();
    assert!(matches!(error, GitError::Fetch { .. }), "{error}");
}

#[tokio::test]
async fn a_full_clone_stays_full() {
    let (real, commits) = history();
    let clone = real.clone_with(&["--single-branch", "--branch=main"]);
    let repository = open(&clone);
    repository.ensure(&id(&commits[3]), None).await.unwrap();
    assert!(!repository.is_shallow().unwrap());
    let base = repository.merge_base(&id(&commits[2]), &id(&commits[3])).unwrap();
    assert_eq!(base.as_str(), commits[1]);
}

#[test]
fn submodules_are_read_where_they_are_checked_out() {
    let library = Real::init();
    library.write("lib.k", "lib = 1\n");
    library.commit("library");
    let real = Real::init();
    let url = library.path().to_str().unwrap().to_owned();
    real.write("main.k", "import shared\n");
    real.git([
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        url.as_str(),
        "shared",
    ]);
    let commit = id(&real.commit("with a submodule"));
    let source = open(&real).revision(&commit).unwrap();
    assert_eq!(
        paths(source.as_ref()),
        [".gitmodules", "main.k", "shared", "shared/lib.k"]
    );
    assert_eq!(text(source.as_ref(), "shared/lib.k"), "lib = 1\n");
    let clone = real.clone_with(&[]);
    let bare = open(&clone).revision(&commit).unwrap();
    assert_eq!(paths(bare.as_ref()), [".gitmodules", "main.k", "shared"]);
    let entry = bare.files()[&RepoPath::normalize("shared").unwrap()];
    assert_eq!(entry.kind, FileKind::Submodule);
}

#[test]
fn a_partial_clone_opens_and_says_what_it_lacks() {
    let (real, commits) = history();
    real.git(["config", "uploadpack.allowFilter", "true"]);
    let partial = real.clone_with(&["--filter=blob:none", "--no-checkout"]);
    partial.git(["config", "core.repositoryformatversion", "1"]);
    partial.git(["config", "extensions.partialClone", "origin"]);
    let source = open(&partial).revision(&id(&commits[2])).unwrap();
    assert_eq!(paths(source.as_ref()), ["a/file.k"]);
    let error = source
        .read_path(&RepoPath::normalize("a/file.k").unwrap())
        .unwrap_err();
    let said = chain(&error);
    assert!(
        said.contains("partial clone") && said.contains("`filter: …`"),
        "{said}"
    );
    // What it says to type is what helps.
    let command = said.split("`git ").nth(1).unwrap().split('`').next().unwrap();
    partial.git(["config", "--unset", "extensions.partialClone"]);
    partial.git(command.split(' '));
    let source = open(&partial).revision(&id(&commits[2])).unwrap();
    assert_eq!(text(source.as_ref(), "a/file.k"), "v = 2\n");
}

#[test]
fn names_that_differ_by_case_alone_are_two_files() {
    let (real, _) = history();
    real.git(["checkout", "--quiet", "--orphan", "clash"]);
    let blob = |text: &str| {
        real.write("scratch", text);
        real.git(["hash-object", "-w", "scratch"])
    };
    let (lower, upper) = (blob("v = 1\n"), blob("v = 2\n"));
    real.git(["rm", "-r", "--quiet", "--cached", "."]);
    for (path, blob) in [("a/file.k", &lower), ("A/file.k", &upper), ("a/File.k", &upper)] {
        let entry = format!("100644,{blob},{path}");
        real.git(["update-index", "--add", "--cacheinfo", entry.as_str()]);
    }
    let tree = real.git(["write-tree"]);
    let commit = real.git(["commit-tree", "-m", "clash", tree.as_str()]);
    let source = open(&real).revision(&id(&commit)).unwrap();
    assert_eq!(paths(source.as_ref()), ["A/file.k", "a/File.k", "a/file.k"]);
    assert_eq!(text(source.as_ref(), "a/file.k"), "v = 1\n");
    assert_eq!(text(source.as_ref(), "A/file.k"), "v = 2\n");
}

/// Every edit of a tree that git can hold, by way of the tree before: the same files as read again.
#[test]
fn a_revision_is_reached_from_another_one() {
    let real = Real::init();
    real.write("a/b/one.k", "1")
        .write("a/two.k", "2")
        .write("c/three.k", "3");
    real.write("file", "x").write("folder/in.k", "y");
    let mut commits = vec![real.commit("base")];
    real.write("a/b/one.k", "one").write("new/deep/er.k", "n");
    commits.push(real.commit("edit and add"));
    real.remove("c").rename("a/b", "moved");
    commits.push(real.commit("remove and move"));
    real.remove("file").remove("folder");
    real.write("file/now.k", "a folder").write("folder", "a file");
    commits.push(real.commit("a file becomes a folder, a folder a file"));
    std::os::unix::fs::symlink("moved", real.path().join("link")).unwrap();
    commits.push(real.commit("a link"));
    std::fs::remove_file(real.path().join("link")).unwrap();
    real.write("link", "moved");
    commits.push(real.commit("a file where a link was"));
    let repository = open(&real);
    for from in &commits {
        let near = repository.revision(&id(from)).unwrap().listing().unwrap();
        for to in &commits {
            let again = repository.revision(&id(to)).unwrap();
            let reached = repository.revision_near(&id(to), Some(&near)).unwrap();
            assert_eq!(reached.files(), again.files(), "{from} to {to}");
            assert_eq!(reached.listing().unwrap().tree, again.listing().unwrap().tree);
            assert_eq!(reached.commit(), again.commit());
        }
    }
    // A tree that is gone cannot be used; the revision is read all the same.
    let mut lost = repository.revision(&id(&commits[0])).unwrap().listing().unwrap();
    lost.tree = TreeId([7; 20]);
    let again = repository.revision(&id(&commits[1])).unwrap();
    let read = repository.revision_near(&id(&commits[1]), Some(&lost)).unwrap();
    assert_eq!(read.files(), again.files());
}

#[test]
fn names_that_no_checkout_may_hold_are_refused() {
    let (real, _) = history();
    let blob = real.git(["rev-parse", "HEAD:b.k"]);
    let mut tree = b"100644 ..\0".to_vec();
    tree.extend(
        (0..40)
            .step_by(2)
            .map(|at| u8::from_str_radix(&blob[at..at + 2], 16).unwrap()),
    );
    let git = git2::Repository::open(real.path()).unwrap();
    git2::opts::strict_object_creation(false);
    let tree = git
        .odb()
        .unwrap()
        .write(git2::ObjectType::Tree, &tree)
        .unwrap()
        .to_string();
    let commit = real.git(["commit-tree", "-m", "hostile", &tree]);
    let Err(error) = open(&real).revision(&id(&commit)) else {
        panic!("the hostile name was read");
    };
    assert!(matches!(error, GitError::HostileName { .. }), "{error}");
}

#[test]
fn what_is_no_repository_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let Err(error) = Repository::discover(folder.path()) else {
        panic!("found a repository");
    };
    let failure = UserError::from(error);
    assert!(
        failure.hints.iter().any(|hint| hint.contains("--repo")),
        "{failure:?}"
    );
}

/// Most of a file is enough, in whichever folder it is; a copy beside it, and another text, are none.
#[test]
fn a_folder_whose_file_git_sees_renamed_is_known() {
    let real = Real::init();
    let program = |value: &str| format!("name = \"web\"\nport = 8080\nreplicas = 3\nvalue = \"{value}\"\n");
    real.write("appops/shop/prod/main.k", program("good"));
    real.write("appops/other/prod/main.k", "nothing = {}\n");
    let before = real.commit("before");
    let path = |path: &str| RepoPath::normalize(path).unwrap();
    let (old, new) = (path("appops/shop/prod"), path("apps/store/prod"));
    let is_renamed = |from: &RepoPath, after: &str| {
        let (before, after) = (id(&before), id(after));
        let from = CommitFolder {
            commit: &before,
            folder: from,
        };
        let to = CommitFolder {
            commit: &after,
            folder: &new,
        };
        open(&real).is_renamed(from, to).unwrap()
    };
    real.write("apps/store/prod/program.k", program("bad"));
    let copied = real.commit("copied");
    assert!(!is_renamed(&old, &copied));
    real.remove("appops/shop");
    let moved = real.commit("moved");
    assert!(is_renamed(&old, &moved));
    assert!(!is_renamed(&path("appops/other/prod"), &moved));
    real.write(
        "apps/store/prod/program.k",
        "another = [1, 2, 3]\nthing = {a.b = \"c\"}\n",
    );
    let another = real.commit("another");
    assert!(!is_renamed(&old, &another));
}
