/* The modes of the game: title, a level from its beginning to flag or death, the end, game over. */
#include "game.h"

#define LIVES 2         /* counted from 0 */
#define TICK 24         /* frames of a unit of time */
#define INTRO 70
#define PAUSE_AFTER 90

static u8 tick, before, pressed;
static const u8 shine[] = {0x38, 0x38, 0x37, 0x28, 0x27, 0x28, 0x37, 0x38};

static void rest(u8 frames) {
    while (frames) {
        play_sound();
        wait_frame();
        --frames;
    }
}

static void show_message(u16 where, const char *text) {
    screen_off();
    clear_screen(0);
    set_black();
    draw_status_labels();
    put_text(where, text);
}

static void read_buttons(void) {
    pressed = joypad & ~before;
    before = joypad;
}

static void title(void) {
    mode = MODE_TITLE;
    task = TASK_LOADS;
    world = level = area = 0;
    stop_music();
    screen_off();
    load_level();
    place_player();
    draw_logo();
    put_text(0x2189, "A FOX ON THE RUN");
    put_text(0x21EB, "PUSH START");
    show_page = 1; /* four pixels to the right, which puts the name in the middle */
    show_x = 252;
    screen_on();
    do {
        hide_sprites();
        player_speed = 24;
        draw_player();
        shimmer = shine[(frame_counter >> 3) & 7];
        wait_frame();
        read_buttons();
    } while (!(pressed & BUTTON_START));
    level = area;
    for (tick = 0; tick < 6; ++tick) {
        score[tick] = 0;
    }
    coins = coin_digits[0] = coin_digits[1] = 0;
    lives = LIVES;
    mode = MODE_GAME;
}

static void count_time(void) {
    if (--tick) {
        return;
    }
    tick = TICK;
    if (timer[2]) {
        --timer[2];
    } else if (timer[1]) {
        --timer[1];
        timer[2] = 9;
    } else if (timer[0]) {
        --timer[0];
        timer[1] = timer[2] = 9;
    } else {
        kill_player();
    }
}

static void play_frame(void) {
    if (player_state == STATE_PLAYS) {
        control_player(joypad);
        move_player();
        count_time();
    } else if (player_state == STATE_DYING) {
        hop_dying();
    } else if (player_state == STATE_POLE) {
        slide_down_pole();
    } else {
        control_player(BUTTON_RIGHT);
        move_player();
    }
    if (player_state != STATE_DYING) {
        follow_player();
        move_enemies();
    }
    hide_sprites();
    draw_player();
    move_bump();
    draw_enemies();
    shimmer = shine[(frame_counter >> 3) & 7];
    play_sound();
}

static u8 at_door(void) {
    return player_state == STATE_LEAVES && ((player_page << 4) | (player_x >> 4)) >= door_column;
}

static void pay_for_time(void) {
    hide_sprites();
    while (timer[0] | timer[1] | timer[2]) {
        tick = 1;
        count_time();
        add_score(5, 5);
        wait_frame();
    }
    rest(PAUSE_AFTER);
}

static void introduce(void) {
    static char life[6];
    show_message(0x21AC, "GET READY");
    life[0] = 'F';
    life[1] = 'O';
    life[2] = 'X';
    life[3] = '*';
    life[4] = '1' + (lives < 9 ? lives : 8);
    life[5] = 0;
    put_text(0x220D, life);
    screen_on();
    rest(INTRO);
    screen_off();
}

/* One level until the flag or a death; says whether it was the flag. */
static u8 play_level(void) {
    task = TASK_LOADS;
    player_state = STATE_ENTERS;
    float_state = FLOAT_STANDS;
    paused = 0;
    introduce();
    load_level();
    place_player();
    tick = TICK;
    screen_on();
    start_music();
    player_state = STATE_PLAYS;
    task = TASK_PLAYS;
    before = BUTTON_START;
    for (;;) {
        play_frame();
        wait_frame();
        read_buttons();
        if (pressed & BUTTON_START && player_state == STATE_PLAYS) {
            paused = 1;
            stop_music();
            do {
                wait_frame();
                read_buttons();
            } while (!(pressed & BUTTON_START));
            paused = 0;
            start_music();
        }
        if (player_state == STATE_DEAD) {
            --lives;
            return 0;
        }
        if (at_door()) {
            pay_for_time();
            return 1;
        }
    }
}

static void finish(u8 new_mode, u16 where, const char *text) {
    mode = new_mode;
    task = TASK_LOADS;
    show_message(where, text);
    screen_on();
    rest(200);
}

void main(void) {
    for (;;) {
        title();
        while (mode == MODE_GAME) {
            if (play_level()) {
                if (area == LEVELS - 1) {
                    finish(MODE_END, 0x21A8, "THE FOX IS HOME!");
                } else {
                    ++level;
                    ++area;
                }
            } else if (lives == 0xFF) {
                finish(MODE_OVER, 0x21AB, "GAME OVER");
            }
        }
    }
}
