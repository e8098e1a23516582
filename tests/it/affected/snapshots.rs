//! What earlier runs kept (the index of imports, and one revision) changes no answer: cut off, spoilt, of another
//! repository, written by several processes at once. And it stays in proportion.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use konverge_base::model::file_source::Listing;
use konverge_repo::{
    affected::{Analysis, ScanCache, Snapshot},
    konfig::{Layout, SettingsOrder},
};

use crate::{
    affected::random_repository::{Dice, Files, monorepo},
    support::{
        git::Repository,
        process::{Konverge, Running},
    },
};

/// A repository with a change on each of two branches: one edits, one adds a file that an import may find.
fn repository() -> Repository {
    let repository = Repository::konfig_example();
    repository.branch("edits");
    let text = repository.read("base/pkg/frontend/server.k");
    repository.write("base/pkg/frontend/server.k", format!("{text}\n_edited = 1\n"));
    repository.commit("edits");
    repository.checkout("main").branch("adds");
    repository.write("base/pkg/frontend/added.k", "_added = 1\n");
    repository.commit("adds");
    repository
}

fn affected(repository: &Repository, head: &str, cache: &Path) -> Konverge {
    Konverge::new(["affected", "--output=json", "--base=main", "--head", head])
        .dir(repository.path())
        .env("XDG_CACHE_HOME", cache)
}

fn answer(repository: &Repository, head: &str, cache: &Path) -> String {
    affected(repository, head, cache).run().expect(0).stdout
}

/// The kept files, by how their names end.
fn kept(cache: &Path, ending: &str) -> PathBuf {
    let folder = cache.join("konverge/affected");
    let mut paths = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    paths
        .find(|path| path.extension().is_some_and(|found| found == ending))
        .unwrap()
}

#[test]
fn spoilt_files_change_no_answer_and_are_made_anew() {
    let repository = repository();
    let scratch = tempfile::tempdir().unwrap();
    let cold = |head: &str| answer(&repository, head, &scratch.path().join("cold").join(head));
    let answers = ["edits", "adds"].map(|head| (head, cold(head)));
    assert_ne!(answers[0].1, answers[1].1);
    assert!(answers.iter().all(|(_, text)| text.contains("frontend")));

    let cache = scratch.path().join("cache");
    assert_eq!(answer(&repository, "edits", &cache), answers[0].1);
    let files = ["index", "revision"].map(|ending| kept(&cache, ending));
    let whole = files.clone().map(|path| std::fs::read(path).unwrap());
    let other = {
        let elsewhere = Repository::init();
        elsewhere.write("kcl.mod", "").commit("almost nothing");
        elsewhere.branch("edits").write("x.k", "x = 1\n").commit("little");
        let cache = scratch.path().join("elsewhere");
        answer(&elsewhere, "edits", &cache);
        std::fs::read(kept(&cache, "revision")).unwrap()
    };
    let bent = |bytes: &[u8], at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1;
        bytes
    };
    type Spoil<'a> = (&'a str, Box<dyn Fn(&[u8]) -> Vec<u8> + 'a>);
    let spoilt: [Spoil<'_>; 7] = [
        ("empty", Box::new(|_| Vec::new())),
        (
            "its first half",
            Box::new(|whole| whole[..whole.len() / 2].to_vec()),
        ),
        (
            "all but its end",
            Box::new(|whole| whole[..whole.len() - 1].to_vec()),
        ),
        (
            "a bit bent in the middle",
            Box::new(|whole| bent(whole, whole.len() / 2)),
        ),
        ("a bit bent in its header", Box::new(|whole| bent(whole, 3))),
        ("twice", Box::new(|whole| [whole, whole].concat())),
        ("text", Box::new(|_| b"konverge revision 1\nnot at all".to_vec())),
    ];
    for (at, path) in files.iter().enumerate() {
        for (how, spoil) in &spoilt {
            for (head, expected) in &answers {
                std::fs::write(path, spoil(&whole[at])).unwrap();
                assert_eq!(
                    &answer(&repository, head, &cache),
                    expected,
                    "{}: {how}",
                    path.display()
                );
            }
        }
        std::fs::write(path, &whole[at]).unwrap();
    }
    // Whole, but of another repository: none of its commits is here.
    for (head, expected) in &answers {
        std::fs::write(&files[1], &other).unwrap();
        assert_eq!(&answer(&repository, head, &cache), expected);
    }
    // Both are whole again, for the revision that both changes start from.
    assert_eq!(std::fs::read(&files[1]).unwrap(), whole[1]);
    assert!(Snapshot::load(&files[1]).is_some());
    assert!(!ScanCache::load(&files[0]).is_empty());
    // A place that cannot be written is no place, and no error.
    let blocked = scratch.path().join("blocked");
    std::fs::write(&blocked, "a file").unwrap();
    assert_eq!(answer(&repository, "edits", &blocked), answers[0].1);
}

#[test]
fn processes_that_write_at_once_change_no_answer() {
    let repository = repository();
    let scratch = tempfile::tempdir().unwrap();
    let heads = ["edits", "adds", "main", "edits", "adds", "main"];
    let expected = heads.map(|head| answer(&repository, head, &scratch.path().join("cold").join(head)));
    let cache = scratch.path().join("cache");
    for round in 0..4 {
        // From nothing, and from what the round before left of all of them.
        let running: Vec<Running> = heads
            .iter()
            .map(|head| affected(&repository, head, &cache).start())
            .collect();
        for ((running, head), expected) in running.into_iter().zip(heads).zip(&expected) {
            assert_eq!(
                &running.wait().expect(0).stdout,
                expected,
                "round {round}: {head}"
            );
        }
        assert!(
            Snapshot::load(&kept(&cache, "revision")).is_some(),
            "round {round}"
        );
    }
    let left = std::fs::read_dir(cache.join("konverge/affected"))
        .unwrap()
        .count();
    assert_eq!(left, 2, "an index and a revision, nothing half-written");
}

fn analyzed(files: &Files, index: &ScanCache) -> Analysis {
    let source = files.source();
    let layout = Layout::read(&source, SettingsOrder::V090).unwrap();
    Analysis::new(source, layout, "0.13.2", index).unwrap()
}

/// A reader sees, while others write, one of the revisions that were written, whole.
#[test]
fn a_reader_sees_a_whole_revision() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("x.revision");
    let revisions: Vec<Snapshot> = (0..3)
        .map(|seed| {
            let analysis = analyzed(&monorepo(&mut Dice(seed)), &ScanCache::new());
            Snapshot::take(&analysis, SettingsOrder::V090).unwrap()
        })
        .collect();
    let trees: Vec<_> = revisions.iter().map(|kept| kept.listing().tree).collect();
    revisions[0].save(&place).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writers: Vec<_> = revisions
            .iter()
            .map(|kept| scope.spawn(|| (0..100).for_each(|_| kept.save(&place).unwrap())))
            .collect();
        let reader = scope.spawn(|| {
            let mut met = 0;
            while !done.load(Ordering::Relaxed) {
                let kept = Snapshot::load(&place).expect("it is there, and whole");
                assert!(trees.contains(&kept.listing().tree));
                met += 1;
            }
            met
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
}

/// A repository in which every file is edited again and again: the index does not keep all that ever was.
#[test]
fn the_index_sheds_what_no_revision_holds() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("x.index");
    let mut files = Files::default();
    files.put("kcl.mod", "");
    files.put("apps/shop/project.yaml", "name: shop\n");
    files.put("apps/shop/dev/stack.yaml", "name: dev\n");
    files.put("apps/shop/dev/kcl.yaml", "kcl_cli_configs:\n  files: [main.k]\n");
    files.put("apps/shop/dev/main.k", "import base.pkg\n");
    let mut sizes = Vec::new();
    for generation in 0..12 {
        for number in 0..1500 {
            let text = format!("import math\nx{number} = {generation}\n");
            files.put(&format!("base/pkg/f{number}.k"), text);
        }
        let index = ScanCache::load(&place);
        let analysis = analyzed(&files, &index);
        index.drop_unused(&[listing(&analysis)]);
        index.save(&place).unwrap();
        sizes.push(ScanCache::load(&place).len());
    }
    assert!(
        sizes.iter().all(|size| (1501..=4096 + 1501).contains(size)),
        "{sizes:?}"
    );
    assert!(
        sizes.iter().any(|size| *size > 3000),
        "what was before is mostly known: {sizes:?}"
    );
    // What the last revision holds is all there: nothing is learned again.
    let index = ScanCache::load(&place);
    analyzed(&files, &index);
    assert!(!index.has_grown());
}

fn listing(analysis: &Analysis) -> Listing {
    analysis.tree().source().listing().unwrap()
}
