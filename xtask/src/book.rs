//! `cargo xtask book`: renews the copies of programs in the pages of `docs/book`, and builds them as web pages.

use std::env;
use std::process::Command;

use crate::failure::Failure;
use crate::included;
use crate::repo::Repo;
use crate::tools::Tool;

const MDBOOK: Tool = Tool { name: "mdbook", version: "0.5.4", options: &["--no-default-features"] };

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<(), Failure> {
    if let [first, ..] = args {
        return Err(Failure::Usage(format!("`book` does not accept `{first}`")));
    }
    renew_copies(repo)?;
    let own = env::current_exe()
        .map_err(|error| Failure::Failed(format!("cannot find the path of this program: {error}")))?;
    let mdbook = MDBOOK.install(repo)?;
    let pages = own.with_file_name("book");
    for (book, folder) in [("docs/book", pages.clone()), ("docs/book/zh", pages.join("zh"))] {
        let status = Command::new(&mdbook)
            .arg("build")
            .arg(repo.path(book))
            .arg("--dest-dir")
            .arg(folder)
            .status()
            .map_err(|error| Failure::Failed(format!("cannot run mdbook: {error}")))?;
        if !status.success() {
            return Err(Failure::Failed(format!("mdbook failed: {status}")));
        }
    }
    println!("{}", pages.join("index.html").display());
    Ok(())
}

fn renew_copies(repo: &Repo) -> Result<(), Failure> {
    for page in repo.files_under("docs/book", "md")? {
        let renewed = included::renew(&page.text, &|path| repo.read_if_exists(path))
            .map_err(|(line, mistake)| Failure::Failed(format!("{}:{line}: {mistake}", page.path)))?;
        if renewed != page.text {
            repo.write(&page.path, &renewed)?;
        }
    }
    Ok(())
}
