use std::path::Path;

use super::{Files, POSTGRES, SQLITE, migrator};

/// Version, description and checksum of each.
fn described(migrator: &sqlx::migrate::Migrator) -> Vec<(i64, String, Vec<u8>)> {
    let described = migrator.iter().map(|one| (one.version, one.description.to_string(), one.checksum.to_vec()));
    described.collect()
}

#[tokio::test]
async fn every_migration_of_the_folders_is_in_the_program() {
    let engines: [(&str, Files); 2] = [("sqlite", SQLITE), ("postgres", POSTGRES)];
    for (engine, files) in engines {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/directory/migrations").join(engine);
        let read = sqlx::migrate::Migrator::new(folder).await.expect("the migrations of the folder");
        assert_eq!(described(&migrator(files)), described(&read), "{engine}");
    }
}
