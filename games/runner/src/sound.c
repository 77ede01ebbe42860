/* Effects, each a few writes that then run by themselves, and a tune of two voices. */
#include "game.h"

#define REGISTER(a) (*(volatile u8 *)(a))
#define STEP 9 /* frames a note */
#define NOTES 64
#define REST 0xFF

/* Periods of the notes from C3 on. */
static const u16 periods[] = {
    854, 806, 761, 718, 678, 640, 604, 570, 538, 508, 479, 452, 427, 403, 380, 359, 338, 319, 301, 284, 268,
    253, 239, 225, 213, 201, 190, 179, 169, 159, 150, 142, 134, 127, 119, 113, 106, 100, 95, 89, 84, 80,
};
static const u8 melody[NOTES] = {
    16, REST, 19, 16, 21, REST, 19, REST, 16, 14, 12, REST, 14, REST, 16, REST,
    17, REST, 21, 17, 24, REST, 21, REST, 19, 17, 16, REST, 14, REST, REST, REST,
    16, REST, 19, 16, 21, REST, 24, REST, 26, 24, 21, REST, 19, REST, 21, REST,
    17, 19, 21, REST, 19, 17, 14, REST, 11, 14, 12, REST, 12, REST, REST, REST,
};
static const u8 bass[16] = {0, 7, 9, 5, 5, 2, 7, 7, 0, 7, 9, 5, 5, 7, 0, 0};
static u8 playing, left, place, chime;

void sound_jump(void) {
    REGISTER(0x4000) = 0x84;
    REGISTER(0x4001) = 0xAB;
    REGISTER(0x4002) = 0xA0;
    REGISTER(0x4003) = 0x39;
}

void sound_bump(void) {
    REGISTER(0x4000) = 0x83;
    REGISTER(0x4001) = 0x84;
    REGISTER(0x4002) = 0x60;
    REGISTER(0x4003) = 0x1A;
}

void sound_coin(void) {
    REGISTER(0x4000) = 0x86;
    REGISTER(0x4001) = 0x08;
    REGISTER(0x4002) = 0x70;
    REGISTER(0x4003) = 0x48;
    chime = 5;
}

void sound_stomp(void) {
    REGISTER(0x400C) = 0x03;
    REGISTER(0x400E) = 0x09;
    REGISTER(0x400F) = 0x18;
}

void sound_die(void) {
    REGISTER(0x4000) = 0x8A;
    REGISTER(0x4001) = 0xC3;
    REGISTER(0x4002) = 0x80;
    REGISTER(0x4003) = 0x08;
}

void sound_flag(void) {
    REGISTER(0x4000) = 0x8F;
    REGISTER(0x4001) = 0xCC;
    REGISTER(0x4002) = 0xFF;
    REGISTER(0x4003) = 0x0B;
}

void start_music(void) {
    playing = 1;
    left = 1;
    place = 0;
}

void stop_music(void) {
    playing = 0;
    REGISTER(0x4008) = 0x80;
    REGISTER(0x4004) = 0x30;
}

void play_sound(void) {
    static u8 note;
    static u16 period;
    if (chime && --chime == 0) {
        REGISTER(0x4000) = 0x88;
        REGISTER(0x4001) = 0x08;
        REGISTER(0x4002) = 0x54;
        REGISTER(0x4003) = 0x88;
    }
    if (!playing || --left) {
        return;
    }
    left = STEP;
    note = melody[place];
    if (note != REST) {
        period = periods[note];
        REGISTER(0x4004) = 0x44;
        REGISTER(0x4005) = 0x08;
        REGISTER(0x4006) = period;
        REGISTER(0x4007) = 0x08 | (period >> 8);
    }
    if ((place & 1) == 0) {
        period = periods[bass[place >> 2]];
        REGISTER(0x4008) = 0x14;
        REGISTER(0x400A) = period;
        REGISTER(0x400B) = 0x08 | (period >> 8);
    }
    place = (place + 1) & (NOTES - 1);
}
