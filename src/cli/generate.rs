//! Shell completions and the manual page, made out of the command line itself, so that they cannot lag behind it.

use std::io;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use super::args::Cli;
use super::error::CliError;
use super::out::Out;

/// `interlock completions`.
pub(super) fn print_completions(shell: Shell, out: &Out) -> Result<(), CliError> {
    out.line(String::from_utf8_lossy(&completions(Cli::command(), shell)).trim_end())
}

/// `interlock man`.
pub(super) fn print_manual(out: &Out) -> Result<(), CliError> {
    out.line(String::from_utf8_lossy(&manual(Cli::command())?).trim_end())
}

/// The completions of one shell.
#[must_use]
pub fn completions(mut command: Command, shell: Shell) -> Vec<u8> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    script
}

/// The manual page, roff: the program, and after it each verb with its arguments and its example.
///
/// # Errors
/// None of its own: writing into memory.
pub fn manual(mut command: Command) -> io::Result<Vec<u8>> {
    // Verbs get their full names (`interlock task list`) only when the command is built.
    command.build();
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(command.clone());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    // Not its section of subcommands, which refers to pages of their own: they follow here.
    each_verb(&command, &mut page)?;
    man.render_version_section(&mut page)?;
    Ok(page)
}

fn each_verb(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help" && !verb.is_hide_set()) {
        let man = clap_mangen::Man::new(verb.clone());
        let name = verb.get_bin_name().unwrap_or_else(|| verb.get_name());
        page.extend_from_slice(format!(".SH {}\n", name.to_uppercase().replace('-', "\\-")).as_bytes());
        let mut part = Vec::new();
        man.render_description_section(&mut part)?;
        man.render_synopsis_section(&mut part)?;
        if verb.get_arguments().next().is_some() {
            man.render_options_section(&mut part)?;
        }
        if verb.get_after_help().is_some() {
            man.render_extra_section(&mut part)?;
        }
        // Sections of the verb become parts of its section.
        let part = String::from_utf8_lossy(&part).replace(".SH EXTRA\nExample:\n", ".SH EXAMPLE\n.nf\n");
        page.extend_from_slice(part.replace(".SH ", ".SS ").as_bytes());
        page.extend_from_slice(b".fi\n");
        each_verb(verb, page)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    fn command() -> Command {
        let list =
            Command::new("list").about("The tasks that run").arg(Arg::new("all").long("all").help("Ended ones too"));
        let task =
            Command::new("task").about("Background tasks").subcommand(list.after_help("Example:\n  thing task list"));
        Command::new("thing").about("Does things").version("1.2.3").subcommand(task)
    }

    #[test]
    fn each_shell_gets_completions_that_know_the_verbs() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let script = String::from_utf8(completions(command(), shell)).unwrap();
            assert!(script.contains("task") && script.contains("list") && script.contains("all"), "{shell}");
        }
    }

    #[test]
    fn the_manual_has_each_verb_with_its_arguments_and_example() {
        let page = String::from_utf8(manual(command()).unwrap()).unwrap();
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text:?} is not in\n{page}"));
        assert!(at(".TH thing 1") < at(".SH THING TASK\n"));
        assert!(at(".SH THING TASK\n") < at(".SH THING TASK LIST\n"));
        assert!(at(".SH THING TASK LIST\n") < at("Ended ones too"));
        assert!(at("Ended ones too") < at(".SS EXAMPLE\n.nf\n  thing task list\n"));
        assert!(!page.contains("HELP"), "the verb `help` explains itself");
    }
}
