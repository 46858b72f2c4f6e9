"""Where settings come from: flags before environment before file before default.

A wrong key or value is refused with its source (flag, variable, or file and line) and with what is
allowed or what was probably meant.
"""

from collections.abc import Mapping
from typing import Final

from anabranch.errors import ConfigError
from anabranch.ledgers.addresses import EMBEDDED, shares_metadata
from anabranch.server.named_files import file_problems
from anabranch.server.security import check_security
from anabranch.server.settings import SETTINGS, Settings, SettingValue
from anabranch.server.settings_file import closest, read_file
from anabranch.server.sole_server import may_be_shared

CONFIG_VARIABLE: Final = "ANABRANCH_CONFIG"
"""Names the configuration file where no flag does."""
_PREFIX: Final = "ANABRANCH_"
_FOREIGN_VARIABLES: Final = (CONFIG_VARIABLE, "ANABRANCH_CACHE")
"""Variables with our prefix that are no settings; the second is the cache of test servers."""


def check_file(path: str) -> list[str]:
    """Everything that is wrong with a configuration file and those it names, as one line each.

    Raises:
        ConfigError: if it cannot be read at all.
    """
    values, problems = read_file(path)
    settings = Settings(**values)  # type: ignore[arg-type]
    if not problems:
        try:
            check_together(settings)
        except ConfigError as error:
            problems.append(f"{path}: {error}")
    return problems + [f"{path}: {problem}" for problem in file_problems(settings)]


def load_server_settings(
    *,
    flags: Mapping[str, SettingValue | None],
    environment: Mapping[str, str],
    config_file: str | None = None,
) -> Settings:
    """The same as `load_settings`, for those who read the files that settings name.

    Raises:
        ConfigError: also naming each of these files that cannot be used.
    """
    path = config_file or environment.get(CONFIG_VARIABLE)
    if path and read_file(path)[1]:
        raise ConfigError("\n".join(check_file(path)))
    settings = load_settings(flags=flags, environment=environment, config_file=config_file)
    if problems := file_problems(settings):
        raise ConfigError("\n".join(problems))
    return settings


def load_settings(
    *,
    flags: Mapping[str, SettingValue | None],
    environment: Mapping[str, str],
    config_file: str | None = None,
) -> Settings:
    """Put the settings together; a flag that is None was not given.

    Raises:
        ConfigError: naming the key, its source and what is allowed.
    """
    path = config_file or environment.get(CONFIG_VARIABLE)
    values = _from_file(path) if path else {}
    values |= _from_environment(environment)
    values |= _from_flags(flags)
    settings = Settings(**values)  # type: ignore[arg-type]
    check_together(settings)
    return settings


def _from_flags(flags: Mapping[str, SettingValue | None]) -> dict[str, SettingValue]:
    values: dict[str, SettingValue] = {}
    for name, value in flags.items():
        if value is None:
            continue
        setting = SETTINGS[name]
        try:
            values[name] = setting.accept(value)
        except ValueError as error:
            raise ConfigError(f"{setting.flag}: {error}") from None
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, SettingValue]:
    by_variable = {setting.variable: setting for setting in SETTINGS.values()}
    values: dict[str, SettingValue] = {}
    for variable in sorted(environment):
        if not variable.startswith(_PREFIX) or variable in _FOREIGN_VARIABLES:
            continue
        setting = by_variable.get(variable)
        if setting is None:
            guess = closest(variable, [*by_variable, *_FOREIGN_VARIABLES])
            raise ConfigError(f"environment variable {variable} is no setting{guess}")
        try:
            values[setting.name] = setting.parse(environment[variable])
        except ValueError as error:
            raise ConfigError(f"environment variable {variable}: {error}") from None
    return values


def _from_file(path: str) -> dict[str, SettingValue]:
    values, problems = read_file(path)
    if problems:
        raise ConfigError("\n".join(problems))
    return values


def check_together(settings: Settings) -> None:
    """Refuse settings that are right each for itself and wrong beside each other.

    Raises:
        ConfigError: naming both.
    """
    if settings.port == settings.web_port != 0:
        raise ConfigError(
            f"--port and --web-port are both {settings.port}: give them different numbers"
        )
    check_security(settings)
    on_bookies = shares_metadata(settings.ledgers_url)
    if on_bookies and settings.metadata_url.startswith(EMBEDDED):
        raise ConfigError(
            f"--ledgers-url {settings.ledgers_url} needs a --metadata-url that bookies can reach, "
            "such as zk:HOST:PORT: they register there, and nobody else can look into embedded:"
        )
    if settings.has_configuration_store and not may_be_shared(settings.metadata_url):
        raise ConfigError(
            f"--configuration-metadata-url {settings.configuration_metadata_url} needs a "
            "--metadata-url that others reach, too, such as zk:HOST:PORT: a server that keeps its "
            "metadata itself keeps its tenants there"
        )
    stores = (settings.metadata_url, settings.ledgers_url)
    if stores.count("memory:") == 1:
        raise ConfigError(
            "--metadata-url and --ledgers-url must both be memory: or both be kept on disk: "
            "one would point into what the other has forgotten"
        )
