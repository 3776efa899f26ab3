# Builds for arm64 Linux with Debian's cross compiler (g++-aarch64-linux-gnu), and runs what was built in qemu where that is installed (qemu-user).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

find_program(QEMU_AARCH64 qemu-aarch64)
if(QEMU_AARCH64 AND NOT DEFINED CMAKE_CROSSCOMPILING_EMULATOR)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${QEMU_AARCH64} -cpu cortex-a72 -L /usr/aarch64-linux-gnu)
endif()
