// `rabbet completion SHELL`: scripts that complete the command line, made from
// the tables of commands and options.
#include <string.h>

#include "cli/cli.h"

// ---- Kinds of values -------------------------------------------------------

typedef enum value_kind_t {
  VALUE_NONE,     // a flag
  VALUE_FILE,     // "FILE.npz"
  VALUE_CHOICES,  // "cpu|cuda"
  VALUE_OTHER,    // only the user knows it
} value_kind_t;

static value_kind_t value_kind(const rabbet_option_t* option) {
  if (option->kind == RABBET_OPTION_FLAG) return VALUE_NONE;
  if (strncmp(option->value, "FILE", 4) == 0) return VALUE_FILE;
  return strchr(option->value, '|') ? VALUE_CHOICES : VALUE_OTHER;
}

// "cpu|cuda" as "cpu cuda".
static void print_choices(const char* choices) {
  for (; *choices; ++choices)
    putchar(*choices == '|' ? ' ' : *choices);
}

static void print_words(const rabbet_command_t* command) {
  const char* word;
  for (size_t i = 0; (word = command->word_at(i)); ++i)
    printf("%s%s", i ? " " : "", word);
}

static bool takes_files(const rabbet_command_t* command) {
  return command->max_operands > 0 && !command->word_at;
}

// rabbet_arguments_parse knows -o for it.
static bool has_short_name(const rabbet_option_t* option) {
  return strcmp(option->name, "--output") == 0;
}

// The option that every command has. Commands that parse their line themselves
// list it among their own.
static const char* general_help(const rabbet_command_t* command) {
  return command->run_line ? "" : "--help";
}

// ---- bash ------------------------------------------------------------------

// The case that answers when the word before is one of the options of `kind`.
static void bash_values(const rabbet_command_t* command, value_kind_t kind,
                        const char* answer) {
  rabbet_option_t option;
  bool any = false;
  for (size_t i = 0; rabbet_command_option(command, i, &option); ++i) {
    if (value_kind(&option) != kind) continue;
    printf("%s%s%s", any ? "|" : "        ", option.name,
           has_short_name(&option) ? "|-o" : "");
    any = true;
  }
  if (any) printf(") %s return ;;\n", answer);
}

static void bash_choices(const rabbet_command_t* command) {
  rabbet_option_t option;
  for (size_t i = 0; rabbet_command_option(command, i, &option); ++i) {
    if (value_kind(&option) != VALUE_CHOICES) continue;
    printf("        %s) _rabbet_words \"", option.name);
    print_choices(option.value);
    printf("\"; return ;;\n");
  }
}

static void bash_command(const rabbet_command_t* command) {
  rabbet_option_t option;
  printf("    %s)\n      case $previous in\n", command->name);
  bash_values(command, VALUE_FILE, "_rabbet_files;");
  bash_choices(command);
  bash_values(command, VALUE_OTHER, "");
  printf("      esac\n      options=\"%s", general_help(command));
  for (size_t i = 0; rabbet_command_option(command, i, &option); ++i) {
    // Commands that parse their line themselves take values only in the form
    // --name=value.
    bool equals = command->run_line && option.kind != RABBET_OPTION_FLAG;
    printf(" %s%s", option.name, equals ? "=" : "");
  }
  printf("\"\n      operands=\"");
  if (command->word_at) print_words(command);
  printf("\"\n      files=%d\n      ;;\n", takes_files(command));
}

static void print_bash(void) {
  const rabbet_command_t* command;
  printf(
      "# bash completion for rabbet, made by `rabbet completion bash`.\n"
      "_rabbet_words() {\n"
      "  COMPREPLY=($(compgen -W \"$1\" -- \"$current\"))\n"
      "}\n"
      "_rabbet_files() {\n"
      "  compopt -o filenames 2>/dev/null\n"
      "  mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
      "}\n"
      "_rabbet() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]}\n"
      "  local previous=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  local options operands files\n"
      "  # `=` is a word of its own in --name=value.\n"
      "  [ \"$current\" = = ] && current=\n"
      "  [ \"$previous\" = = ] && previous=${COMP_WORDS[COMP_CWORD-2]}\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    _rabbet_words \"");
  for (size_t i = 0; (command = rabbet_command_at(i)); ++i)
    printf("%s ", command->name);
  printf(
      "--help --version\"\n"
      "    return\n"
      "  fi\n"
      "  case ${COMP_WORDS[1]} in\n");
  for (size_t i = 0; (command = rabbet_command_at(i)); ++i)
    bash_command(command);
  printf(
      "    *) return ;;\n"
      "  esac\n"
      "  case $current in\n"
      "    -*)\n"
      "      _rabbet_words \"$options\"\n"
      "      [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null\n"
      "      ;;\n"
      "    *)\n"
      "      _rabbet_words \"$operands\"\n"
      "      [ $files = 1 ] && _rabbet_files\n"
      "      ;;\n"
      "  esac\n"
      "  return 0\n"
      "}\n"
      "complete -F _rabbet rabbet\n");
}

// ---- zsh -------------------------------------------------------------------

// Text inside single quotes; characters at which _arguments and _describe split
// are escaped.
static void zsh_text(const char* text) {
  for (; *text; ++text) {
    if (*text == '\'')
      printf("'\\''");
    else if (strchr("[]:\\", *text))
      printf("\\%c", *text);
    else
      putchar(*text);
  }
}

static void zsh_option(const rabbet_command_t* command,
                       const rabbet_option_t* option) {
  value_kind_t kind = value_kind(option);
  const char* equals = kind == VALUE_NONE ? "" : command->run_line ? "=-" : "=";
  printf("        '%s%s%s[", option->kind == RABBET_OPTION_LIST ? "*" : "",
         option->name, equals);
  zsh_text(option->help);
  printf("]");
  if (kind == VALUE_FILE) printf(":file:_files");
  if (kind == VALUE_OTHER) printf(":value: ");
  if (kind == VALUE_CHOICES) {
    printf(":value:(");
    print_choices(option->value);
    printf(")");
  }
  printf("' \\\n");
}

static void zsh_command(const rabbet_command_t* command) {
  rabbet_option_t option;
  printf("    %s)\n      _arguments \\\n", command->name);
  for (size_t i = 0; rabbet_command_option(command, i, &option); ++i)
    zsh_option(command, &option);
  if (takes_files(command)) printf("        '*:file:_files' \\\n");
  if (command->word_at) {
    printf("        '1:operand:(");
    print_words(command);
    printf(")' \\\n");
  }
  if (*general_help(command)) printf("        '--help[tell more]' \\\n");
  printf("\n      ;;\n");
}

static void print_zsh(void) {
  const rabbet_command_t* command;
  printf(
      "#compdef rabbet\n"
      "# zsh completion for rabbet, made by `rabbet completion zsh`.\n"
      "_rabbet() {\n"
      "  local -a commands\n"
      "  commands=(\n");
  for (size_t i = 0; (command = rabbet_command_at(i)); ++i) {
    printf("    '%s:", command->name);
    zsh_text(command->summary);
    printf("'\n");
  }
  printf(
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $words[1] in\n");
  for (size_t i = 0; (command = rabbet_command_at(i)); ++i)
    zsh_command(command);
  printf(
      "  esac\n"
      "}\n"
      "# A file of $fpath is the body of the function; otherwise it is read.\n"
      "if [ \"$funcstack[1]\" = _rabbet ]; then\n"
      "  _rabbet \"$@\"\n"
      "else\n"
      "  compdef _rabbet rabbet\n"
      "fi\n");
}

// ---- fish ------------------------------------------------------------------

static void fish_text(const char* text) {
  putchar('\'');
  for (; *text; ++text) {
    if (*text == '\'' || *text == '\\') putchar('\\');
    putchar(*text);
  }
  putchar('\'');
}

static void fish_start(const rabbet_command_t* command) {
  printf("complete -c rabbet -n '__fish_seen_subcommand_from %s'",
         command->name);
}

static void fish_option(const rabbet_command_t* command,
                        const rabbet_option_t* option) {
  fish_start(command);
  bool long_name = option->name[1] == '-';
  printf(" -%c %s%s", long_name ? 'l' : 's', option->name + 1 + long_name,
         has_short_name(option) ? " -s o" : "");
  value_kind_t kind = value_kind(option);
  if (kind == VALUE_FILE) printf(" -r -F");
  if (kind == VALUE_OTHER) printf(" -x");
  if (kind == VALUE_CHOICES) {
    printf(" -x -a '");
    print_choices(option->value);
    printf("'");
  }
  printf(" -d ");
  fish_text(option->help);
  printf("\n");
}

static void fish_command(const rabbet_command_t* command) {
  rabbet_option_t option;
  printf("complete -c rabbet -n __fish_use_subcommand -a %s -d ",
         command->name);
  fish_text(command->summary);
  printf("\n");
  for (size_t i = 0; rabbet_command_option(command, i, &option); ++i)
    fish_option(command, &option);
  if (takes_files(command)) {
    fish_start(command);
    printf(" -F\n");
  }
  if (command->word_at) {
    fish_start(command);
    printf(" -a '");
    print_words(command);
    printf("'\n");
  }
}

static void print_fish(void) {
  const rabbet_command_t* command;
  printf(
      "# fish completion for rabbet, made by `rabbet completion fish`.\n"
      "complete -c rabbet -f\n");
  for (size_t i = 0; (command = rabbet_command_at(i)); ++i)
    fish_command(command);
}

// ---- The command -----------------------------------------------------------

static const struct {
  const char* name;
  void (*print)(void);
} shells[] = {
    {"bash", print_bash},
    {"zsh", print_zsh},
    {"fish", print_fish},
};
enum { SHELL_COUNT = sizeof(shells) / sizeof(shells[0]) };

static const char* shell_at(size_t index) {
  return index < SHELL_COUNT ? shells[index].name : NULL;
}

static rabbet_status_t completion_run(const rabbet_arguments_t* arguments) {
  const char* name = arguments->operands[0];
  for (size_t i = 0; i < SHELL_COUNT; ++i) {
    if (strcmp(shells[i].name, name) != 0) continue;
    shells[i].print();
    return rabbet_ok();
  }
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "there is no completion for the shell '%s'; expected "
                       "bash, zsh or fish",
                       name);
}

const rabbet_command_t rabbet_command_completion = {
    .name = "completion",
    .operands = "bash|zsh|fish",
    .summary = "print a script that completes command lines in a shell",
    .notes =
        "For this shell alone: source <(rabbet completion bash). "
        "Installations put the\nscripts where shells look for them.\n",
    .min_operands = 1,
    .max_operands = 1,
    .run = completion_run,
    .word_at = shell_at,
};
