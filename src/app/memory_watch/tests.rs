use super::*;

#[test]
fn the_lowest_limit_of_a_control_group_and_its_parents_counts() {
    let root = tempfile::tempdir().expect("a folder");
    let inner = root.path().join("a/b");
    std::fs::create_dir_all(&inner).expect("folders");
    let write = |folder: &Path, text: &str| std::fs::write(folder.join("memory.max"), text).expect("a file");
    assert_eq!(limit_of(root.path(), "a/b"), None);
    write(&inner, "max\n");
    assert_eq!(limit_of(root.path(), "a/b"), None);
    write(&root.path().join("a"), "1000\n");
    assert_eq!(limit_of(root.path(), "a/b"), Some(1000));
    write(&inner, "500\n");
    assert_eq!(limit_of(root.path(), "a/b"), Some(500));
    assert_eq!(limit_of(root.path(), ""), None, "the limit of another group does not count");
}

#[test]
fn the_memory_of_this_process_is_measured() {
    assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
}
